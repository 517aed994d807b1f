"""Progress of a download: a bar on a terminal, a few lines of log elsewhere."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

logger = logging.getLogger(__name__)

Report = Callable[[int, int | None], None]
"""Called with the bytes that are there and, where known, the bytes of the whole file."""
LOGGED_SHARE = 0.1


@contextmanager
def progress(name: str) -> Iterator[Report]:
    """Show how far the file `name` has come."""
    if not sys.stderr.isatty():
        yield _logged(name)
        return
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _logged(name: str) -> Report:
    """A line for every tenth of the file."""
    said = 0.0

    def report(done: int, total: int | None) -> None:
        nonlocal said
        if total and done / total >= said + LOGGED_SHARE:
            said = done / total
            logger.info("%s: %d of %d MB", name, done // 10**6, total // 10**6)

    return report
