"""Output files that appear whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd


class ResultsError(ValueError):
    """Results that can't be published. The message names the file, what is wrong and what to do."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Temporary path beside `path` with the same suffix; it takes its name when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, floats with all their digits."""
    with whole_file(path) as partial:
        frame.to_csv(partial, index=False)


def write_table(frame: pd.DataFrame, folder: Path, name: str) -> None:
    """Write a table as `name.parquet` and `name.csv`."""
    with whole_file(folder / f"{name}.parquet") as partial:
        frame.to_parquet(partial, index=False)
    write_csv(frame, folder / f"{name}.csv")


def read_table(results: Path, file: str, step: str) -> pd.DataFrame:
    """Read a table that an earlier step wrote.

    Raises:
        ResultsError: it isn't there; the message names the step that writes it.
    """
    path = results / file
    if not path.is_file():
        raise ResultsError(f"{path}: not found; `meshrec {step}` writes it")
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
