"""Raw Criteo text to prepared columns, rows a second, in turns with polars: A/B/A/B, so that a slow moment slows both.

    python tests/benchmarks/data/prepare_speed.py [--polars PYTHON] [--rows N] [--repeats N] [--workers N]

meshrec's side is the whole of `meshrec prepare` on text that it has never seen: every check of every row, the sha256 of the
text and of the columns, and the flush to disk. The side of polars (`polars_side.py`) reads the same text with declared types,
decodes the categories, transforms, and saves the same three arrays; it checks what polars itself checks, hashes nothing and
flushes nothing. Both end with equal arrays, which is verified first. Both use all cores.

`--polars` names the Python of an environment with polars: `python -m venv V && V/bin/pip install polars==2.1.0 numpy==2.4.6`.
Without it, meshrec's side is run alone and the script says so.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]  # other benchmarks' helpers, and the tests' random lines

TABLE_ROWS = 20_000
WANTED_RATIO = 3.0


class Side:
    """A process that prepares the text whenever it is told to, and says how many seconds it took."""

    def __init__(self, command: list[str], out: Path) -> None:
        self._out = out
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self) -> float:
        """Seconds of one preparation into an empty folder."""
        shutil.rmtree(self._out, ignore_errors=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{self._process.args}: ended with status {self._process.wait()}")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def write_text(path: Path, rows: int) -> str:
    """Text of so many rows: the real sample over and over, or generated lines. Returns which."""
    from data.criteo_text import good_lines

    folder = os.environ.get("MESHREC_REAL_DATA")
    if folder:
        with gzip.open(Path(folder) / "criteo" / "kaggle_train_137139.tsv.gz", "rb") as sample:
            lines = sample.readlines()
    else:
        lines = [f"{line}\n".encode() for line in good_lines(20_000)]
    with path.open("wb") as file:
        for start in range(0, rows, len(lines)):
            file.writelines(lines[: rows - start])
    return "real sample, repeated" if folder else "generated lines"


def equal(ours: Path, theirs: Path) -> bool:
    """Whether both sides wrote the same arrays."""
    return all(
        np.array_equal(np.load(ours / name), np.load(theirs / name)) for name in ("label.npy", "dense.npy", "sparse.npy")
    )


def measure(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each turn of each side."""
    text, outs = str(folder / "rows.tsv"), (folder / "ours", folder / "theirs")
    sides = {
        "meshrec": Side([sys.executable, str(HERE / "meshrec_side.py"), text, str(outs[0]), str(options.workers)], outs[0])
    }
    if options.polars:
        sides["polars"] = Side([options.polars, str(HERE / "polars_side.py"), text, str(outs[1]), str(TABLE_ROWS)], outs[1])
    for side in sides.values():
        side.turn()
    if options.polars and not equal(*outs):
        sys.exit("the two sides made different arrays: their speeds can't be compared")
    turns: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.repeats):
        for name, side in sides.items():
            turns[name].append(side.turn())
    for side in sides.values():
        side.close()
    return turns


def main() -> None:
    """Print the rates and their ratio; the raw numbers go to a file."""
    from results_file import write
    from spread import spread

    from meshrec.measure.environment import environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polars", help="Python of an environment with polars")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7, help="turns of each side")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", help="where the text and the stores are written; a temporary folder when left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        what = write_text(Path(name) / "rows.tsv", options.rows)
        turns = measure(Path(name), options)
    rates = {side: [options.rows / seconds for seconds in turn] for side, turn in turns.items()}
    for side, values in rates.items():
        print(f"{side:8} {spread(values, ',.0f')} rows/s")
    if "polars" in rates:
        ratios = [ours / theirs for ours, theirs in zip(*rates.values(), strict=True)]
        print(f"ratio    {spread(ratios, '.2f')}, want at least {WANTED_RATIO:g}")
    else:
        print("polars' side was left out: name an environment that has it with --polars")
    numbers = {"text": what, "options": vars(options), "seconds": turns, "environment": environment()}
    print(f"{what}, {options.rows:,} rows; raw numbers in {write('prepare_speed', numbers)}")


if __name__ == "__main__":
    main()
