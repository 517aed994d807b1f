"""Opens an address at an offset: over HTTP, or a file on this machine.

requests, because clusters reach the world through proxies and certificates of their own, which it takes from the environment,
and Snakemake brings it anyway; waits and retries before a body begins are urllib3's. pooch would check hashes for us, but it
begins anew after every break, which 4.6 GB and a bad line don't forgive. Going on from an offset is ours, in download.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from meshrec import __version__
from meshrec.data.fetch.errors import AddressError, BrokenOff

CHUNK_BYTES = 1 << 20
TRY_LATER = (HTTPStatus.TOO_MANY_REQUESTS, 500, 502, 503, 504)


@dataclass(frozen=True)
class Patience:
    """How long a server is waited for."""

    attempts: int = 5
    """Tries in a row that bring nothing before an address is given up."""
    backoff_seconds: float = 1.0
    """Wait after the first failure; it doubles with each further one."""
    most_seconds: float = 120.0
    """Longest wait, whatever the server's Retry-After says."""
    timeout_seconds: float = 60.0
    """Silence after which a connection counts as dead."""

    def wait_seconds(self, failures: int) -> float:
        """Wait after so many failures in a row."""
        return float(min(self.most_seconds, self.backoff_seconds * 2 ** (failures - 1)))


@dataclass(frozen=True)
class Opened:
    """A body that is about to be read."""

    start: int
    """Offset of its first byte in the file: the wanted one, or 0 where the server begins anew."""
    total: int | None
    """Length of the whole file; None where the server doesn't say."""
    validator: str | None
    """What must be the same for another request to go on with this file."""
    chunks: Iterator[bytes]
    """Raises BrokenOff where the body ends early."""


class StartOver(BrokenOff):
    """The server's file is not the one that was begun: what has arrived must go."""


@contextmanager
def open_address(address: str, offset: int, validator: str | None, patience: Patience) -> Iterator[Opened]:
    """Open a file at an offset.

    Args:
        address: http, https or file.
        offset: bytes that are there already.
        validator: what `Opened.validator` was when those arrived; the file is sent from its start if it has changed.
        patience: how long to wait.

    Raises:
        AddressError: this address won't give the file.
        BrokenOff: it may if it is asked again.
    """
    if address.startswith("file:"):
        with _open_local(address, offset, validator) as opened:
            yield opened
        return
    with _session(patience) as session:
        response = _get(session, address, offset, validator, patience)
        try:
            yield _opened(response, address, offset)
        finally:
            response.close()


@contextmanager
def _open_local(address: str, offset: int, validator: str | None) -> Iterator[Opened]:
    path = Path(unquote(urlsplit(address).path))
    try:
        file = path.open("rb")
    except OSError as error:
        raise AddressError(f"{path}: {error.strerror}") from None
    with file:
        status = path.stat()
        found = f"{status.st_size}-{status.st_mtime_ns}"
        start = offset if offset <= status.st_size and validator in (None, found) else 0
        file.seek(start)
        yield Opened(start, status.st_size, found, iter(lambda: file.read(CHUNK_BYTES), b""))


def _session(patience: Patience) -> requests.Session:
    session = requests.Session()
    retry = Retry(
        total=patience.attempts - 1,
        status_forcelist=TRY_LATER,
        backoff_factor=patience.backoff_seconds,
        backoff_max=patience.most_seconds,
        retry_after_max=int(patience.most_seconds),
        raise_on_status=False,
    )
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _get(session: requests.Session, address: str, offset: int, validator: str | None, patience: Patience) -> requests.Response:
    # identity: a range counts the bytes that are sent, and those must be the file's own
    headers = {"Accept-Encoding": "identity", "User-Agent": f"meshrec/{__version__}"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = session.get(address, headers=headers, stream=True, timeout=patience.timeout_seconds)
    except requests.RequestException as error:
        raise AddressError(f"{address}: can't be reached: {_reason(error)}") from None
    if address.startswith("https:") and not response.url.startswith("https:"):
        response.close()
        raise AddressError(f"{address}: redirects to {response.url}, which isn't encrypted")
    return response


def _reason(error: BaseException) -> str:
    """The innermost cause in words, without the object addresses of urllib3's."""
    while (inner := getattr(error, "reason", None) or (error.args and error.args[0])) and isinstance(inner, BaseException):
        error = inner
    return str(error).rpartition(">: ")[2] or type(error).__name__


def _opened(response: requests.Response, address: str, offset: int) -> Opened:
    if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        if response.headers.get("Content-Range") == f"bytes */{offset}":  # all is here: the end came after the last byte
            return Opened(offset, offset, _validator(response), iter(()))
        raise StartOver(f"{address}: its file isn't longer than the {offset} bytes that are here")
    if response.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        raise AddressError(f"{address}: {response.status_code} {response.reason}{_advice(response.status_code)}")
    kind = response.headers.get("Content-Type", "")
    if kind.split(";")[0].strip().lower() in ("text/html", "application/xhtml+xml"):
        raise AddressError(f"{address}: sends a web page ({kind}) instead of the file: open it in a browser to see why")
    start, total = _extent(response, address, offset)
    return Opened(start, total, _validator(response), _chunks(response, address))


def _advice(status: int) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return " (does it want an account, or its terms accepted?)"
    return ", and so again and again" if status in TRY_LATER else ""


def _extent(response: requests.Response, address: str, offset: int) -> tuple[int, int | None]:
    """Where the body begins, and the file's length."""
    if response.status_code == HTTPStatus.OK:
        length = response.headers.get("Content-Length", "")
        if not length.isdecimal() and "chunked" not in response.headers.get("Transfer-Encoding", ""):
            raise AddressError(f"{address}: doesn't say how long the file is, so that a part couldn't be told from the whole")
        return 0, int(length) if length.isdecimal() else None
    said = response.headers.get("Content-Range", "")
    unit, _, extent = said.partition(" ")
    span, _, total = extent.partition("/")
    if unit != "bytes" or span.partition("-")[0] != str(offset):
        raise AddressError(f"{address}: asked for the bytes from {offset}, it answers with {said or 'others'!r}")
    return offset, int(total) if total.isdecimal() else None


def _validator(response: requests.Response) -> str | None:
    tag = response.headers.get("ETag")
    # a weak tag promises a file that means the same, not the same bytes
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _chunks(response: requests.Response, address: str) -> Iterator[bytes]:
    try:
        # not decoded: some servers call a .gz file gzip-encoded, and requests would unpack it
        yield from response.raw.stream(CHUNK_BYTES, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise BrokenOff(f"{address}: broke off: {_reason(error)}") from None
