"""One file from the first of its addresses that gives it, whole and verified."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from meshrec.data.fetch.errors import AddressError, BrokenOff, CorruptError, FetchError
from meshrec.data.fetch.partial import Partial
from meshrec.data.fetch.progress import Report
from meshrec.data.fetch.transport import Opened, Patience, StartOver, open_address
from meshrec.data.store import sha256_of

logger = logging.getLogger(__name__)

WEB_PAGE = (b"<!doctype html", b"<html")


@dataclass(frozen=True)
class Wanted:
    """What a file must be; None is not known."""

    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Downloader:
    """Fills a partial file. A broken connection is taken up where it broke, a bad address is left for the next."""

    wanted: Wanted
    report: Report
    patience: Patience = field(default_factory=Patience)
    sleep: Callable[[float], None] = time.sleep

    def download(self, partial: Partial, addresses: list[str]) -> tuple[str, str]:
        """Fetch and verify. Returns the file's sha256 and the address that gave it; the partial file is whole then.

        Raises:
            FetchError: no address gave the file, or there is no room for it. What arrived in good order is kept.
        """
        problems = []
        for address in addresses:
            try:
                return self._from(address, partial), address
            except AddressError as error:
                logger.info("%s", error)
                problems.append(str(error))
        raise FetchError(f"{partial.final.name}: no address gave the file:\n  " + "\n  ".join(problems))

    def _from(self, address: str, partial: Partial) -> str:
        joined = partial.size > 0
        try:
            return self._whole(address, partial)
        except CorruptError as error:
            if not joined:
                raise
            logger.info("%s; the part that was here before may be to blame: from the start", error)
            return self._whole(address, partial)

    def _whole(self, address: str, partial: Partial) -> str:
        """All bytes from one address, then their hash.

        Raises:
            CorruptError: they are others; they are removed.
        """
        self._complete(address, partial)
        found = sha256_of(partial.path)
        if self.wanted.sha256 not in (None, found) or self.wanted.bytes not in (None, partial.size):
            size = partial.size
            partial.discard()
            raise CorruptError(f"{address}: sends {size} bytes with sha256 {found}; {self._expected()}")
        return found

    def _expected(self) -> str:
        wants = [f"{self.wanted.bytes} bytes"] * (self.wanted.bytes is not None)
        return "want " + " with ".join(wants + [f"sha256 {self.wanted.sha256}"] * (self.wanted.sha256 is not None))

    def _complete(self, address: str, partial: Partial) -> None:
        """Ask again as long as every few attempts get further than any before them."""
        failures, furthest = 0, partial.size
        while True:
            try:
                return self._once(address, partial)
            except BrokenOff as error:
                failures = 1 if partial.size > furthest else failures + 1
                furthest = max(furthest, partial.size)
                if isinstance(error, StartOver):
                    partial.truncate()
                if failures >= self.patience.attempts:
                    raise AddressError(f"{error} ({failures} times without getting further)") from None
                logger.info("%s; going on from byte %d", error, partial.size)
                self.sleep(self.patience.wait_seconds(failures))

    def _once(self, address: str, partial: Partial) -> None:
        offset, validator = partial.resume_point(address, self.wanted.sha256 is not None)
        if offset and offset == self.wanted.bytes:
            return
        with open_address(address, offset, validator, self.patience) as opened:
            total = opened.total if opened.total is not None else self.wanted.bytes
            if self.wanted.bytes not in (None, total):
                raise AddressError(f"{address}: says that the file has {total} bytes, want {self.wanted.bytes}")
            if opened.start == 0:
                partial.truncate()
            elif self.wanted.sha256 is None and partial.said_total not in (None, total):
                raise AddressError(f"{address}: says {total} bytes now and said {partial.said_total} before")
            partial.note(address, opened.validator, total)
            self._read(opened, total, address, partial)
        if total is not None and partial.size < total:
            raise BrokenOff(f"{address}: broke off after {partial.size} of {total} bytes")

    def _read(self, opened: Opened, total: int | None, address: str, partial: Partial) -> None:
        for chunk in opened.chunks:
            if not partial.size and chunk[:64].lstrip().lower().startswith(WEB_PAGE):
                raise AddressError(f"{address}: sends a web page instead of the file: open it in a browser to see why")
            if total is not None and partial.size + len(chunk) > total:
                partial.discard()
                raise AddressError(f"{address}: sends more than the {total} bytes of the file")
            partial.append(chunk)
            self.report(partial.size, total)
