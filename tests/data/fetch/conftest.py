import pytest

from meshrec.data.fetch.fetch import Fetcher
from support.bad_server import Site, serving
from support.downloads import CONTENT, FAST


@pytest.fixture
def fetcher(tmp_path):
    return Fetcher(tmp_path / "data", patience=FAST)


@pytest.fixture
def site():
    with serving(Site(CONTENT)) as site:
        yield site
