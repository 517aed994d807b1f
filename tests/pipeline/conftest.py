import pytest

from support.checkout import TINY, checkout_in


@pytest.fixture
def checkout(tmp_path):
    made = checkout_in(tmp_path)
    made.experiment("tiny", TINY)
    return made


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny experiment, run from nothing to the report. Copy it before changing anything."""
    made = checkout_in(tmp_path_factory.mktemp("finished"))
    made.experiment("tiny", TINY)
    made.run()
    return made
