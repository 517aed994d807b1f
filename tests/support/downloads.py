"""What the tests of downloads share: a random file, a source that names it, and what must be left after a fetch."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from meshrec.data.fetch.errors import FetchError
from meshrec.data.fetch.fetch import Fetcher
from meshrec.data.fetch.sources import Source
from meshrec.data.fetch.transport import Patience

CONTENT = bytes(os.urandom(3_000_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FAST = Patience(attempts=3, backoff_seconds=0.01, most_seconds=2, timeout_seconds=5)


def source(*urls: str, sha256: str | None = SHA256, size: int | None = None, **changes: Any) -> Source:
    """A data set `set` of one file `rows.bin`."""
    file = {"name": "rows.bin", "urls": list(urls), "sha256": sha256, "bytes": size, **changes}
    page = "https://example.org/"
    return Source.model_validate(
        {"name": "set", "version": "1", "title": "T", "licence": "L", "licence_page": page, "pages": [page], "files": [file]}
    )


def raw(fetcher: Fetcher, name: str = "rows.bin") -> Path:
    """Where a file of the set lands."""
    return fetcher.data / "raw" / "set" / name


def partial(fetcher: Fetcher) -> Path:
    """What has arrived of it."""
    return raw(fetcher, ".rows.bin.partial")


def whole(fetcher: Fetcher, origin: Source) -> None:
    """Fetch, and see that exactly the file is there and nothing else."""
    assert fetcher.fetch(origin) == [raw(fetcher)]
    assert raw(fetcher).read_bytes() == CONTENT
    assert sorted(path.name for path in raw(fetcher).parent.iterdir()) == [".fetch.lock", "rows.bin"]


def fails(fetcher: Fetcher, origin: Source, message: str) -> None:
    """Fetch, and see that it ends in this error and without the file."""
    with pytest.raises(FetchError, match=message):
        fetcher.fetch(origin)
    assert not raw(fetcher).exists()
