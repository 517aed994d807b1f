"""The side of polars in `prepare_speed.py`: the same arrays by its own fastest means. Needs polars and NumPy, not meshrec."""

import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

INTEGERS = [f"I{number}" for number in range(1, 14)]
CATEGORIES = [f"C{number}" for number in range(1, 27)]
SCHEMA = {"label": pl.Int64, **dict.fromkeys(INTEGERS, pl.Int64), **dict.fromkeys(CATEGORIES, pl.String)}


def prepare(text: str, out: Path, table_rows: int) -> None:
    """Read, transform, and save three arrays."""
    frame = pl.scan_csv(text, separator="\t", has_header=False, schema=SCHEMA, quote_char=None).select(
        pl.col("label").cast(pl.Float32),
        pl.col(INTEGERS).clip(0).cast(pl.Float64).log1p().cast(pl.Float32).fill_null(-1.0),
        (pl.col(CATEGORIES).str.to_integer(base=16, dtype=pl.Int64) % (table_rows - 1) + 1).cast(pl.Int32).fill_null(0),
    )
    rows = frame.collect(engine="streaming")
    out.mkdir()
    np.save(out / "label.npy", rows["label"].to_numpy())
    np.save(out / "dense.npy", np.ascontiguousarray(rows.select(INTEGERS).to_numpy()))
    np.save(out / "sparse.npy", np.ascontiguousarray(rows.select(CATEGORIES).to_numpy()))


def main() -> None:
    """Arguments: text, folder of the arrays, rows of a table."""
    text, out, table_rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    for _ in sys.stdin:
        start = time.perf_counter()
        prepare(text, out, table_rows)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
