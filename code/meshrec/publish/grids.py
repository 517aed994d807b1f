"""Tables of the report: one grid per rank count and scaling, a column per cell, means over seeds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from meshrec.publish.captions import optimum_of
from meshrec.publish.wording import bytes_text, milliseconds, number

COUNTED_EQUAL = 1e-6
"""Relative difference up to which counted and analytic bytes are the same number."""
MEMORY_CLOSE = 0.01
"""Relative difference up to which measured memory is taken to follow its formula."""


@dataclass(frozen=True)
class Entry:
    """One field of a grid: a value, a second line under it, and whether the two disagree."""

    text: str
    second: str = ""
    differs: bool = False


@dataclass(frozen=True)
class Grid:
    """A small table with its caption."""

    title: str
    head: list[str]
    rows: list[list[Entry]]


def cell_grids(runs: pd.DataFrame) -> list[Grid]:
    """Quality and speed of every cell over its finished seeds; last, on generated data, the best reachable quality."""
    head = ["cell", "seeds", "NE", "logloss", "AUC", "samples/s", "step, ms"]
    best = _optimum_row(runs)
    return [
        Grid(title, head, [_cell_row(str(cell), rows) for cell, rows in part.groupby("cell", sort=False)] + best)
        for title, part in _groups(runs)
    ]


def _optimum_row(runs: pd.DataFrame) -> list[list[Entry]]:
    best = [optimum_of(runs, metric) for metric in ("ne", "logloss", "auc")]
    quality = [Entry("–" if value is None else number(value, 4)) for value in best]
    return [[Entry("planted optimum"), Entry("–"), *quality, Entry("–"), Entry("–")]] if best[0] is not None else []


def _cell_row(cell: str, rows: pd.DataFrame) -> list[Entry]:
    done = rows[rows["status"] == "ok"]
    entries = [Entry(cell), Entry(f"{len(done)} of {len(rows)}")]
    for metric in ("ne", "logloss", "auc"):
        values = done[metric].to_numpy(dtype=float)
        spread = f"sd {number(float(values.std(ddof=1)), 4)}" if len(values) > 1 else ""
        entries.append(Entry(number(float(values.mean()), 4) if len(values) else "–", spread))
    timed = done[done["execution"] == "ranks"]
    rates = timed["samples_per_second"].to_numpy(dtype=float)
    if not len(rates):
        return [*entries, Entry("–"), Entry("–")]
    low, high = number(float(rates.min()), 0), number(float(rates.max()), 0)
    entries.append(Entry(number(harmonic_mean(rates), 0), f"{low} – {high}" if len(rates) > 1 else ""))
    return [*entries, Entry(milliseconds(float(timed["step_seconds"].mean())))]


def harmonic_mean(rates: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Mean of rates over equal amounts of work."""
    return float(1 / np.mean(1 / rates))


def phase_grids(phases: pd.DataFrame) -> list[Grid]:
    """Milliseconds a step by phase: mean over ranks and, below it, the slowest rank."""
    return _grids(phases, "phase", ["phase"], _phase_entry)


def _phase_entry(rows: pd.DataFrame) -> Entry:
    return Entry(milliseconds(float(rows["mean"].mean())), milliseconds(float(rows["max"].mean())))


def bytes_grids(traffic: pd.DataFrame) -> list[Grid]:
    """Bytes a rank sends in a step by collective: counted and, below it, by formula."""
    return _grids(traffic, "collective", ["collective", "dimension"], _bytes_entry)


def _bytes_entry(rows: pd.DataFrame) -> Entry:
    counted, analytic = float(rows["counted"].mean()), float(rows["analytic"].mean())
    return Entry(bytes_text(counted), bytes_text(analytic), _apart(rows["counted"], rows["analytic"], COUNTED_EQUAL))


def memory_grids(memory: pd.DataFrame) -> list[Grid]:
    """Bytes on the fullest rank by component: measured and, below it, by formula."""
    return _grids(memory, "component", ["component"], _memory_entry)


def _memory_entry(rows: pd.DataFrame) -> Entry:
    analytic = rows["analytic_max"].mean()
    if pd.isna(analytic):
        return Entry(bytes_text(float(rows["measured_max"].mean())), "no formula")
    differs = _apart(rows["measured_max"], rows["analytic_max"], MEMORY_CLOSE)
    return Entry(bytes_text(float(rows["measured_max"].mean())), bytes_text(float(analytic)), differs)


def _apart(found: "pd.Series[float]", wanted: "pd.Series[float]", tolerance: float) -> bool:
    """Whether any run's number differs from its formula's: a mean over seeds could hide it."""
    return bool(((found - wanted).abs() > tolerance * wanted.abs()).any())


def _grids(frame: pd.DataFrame, part: str, keys: list[str], entry: Callable[[pd.DataFrame], Entry]) -> list[Grid]:
    """A grid per rank count and scaling: a row per part, a column per cell."""
    grids = []
    for title, here in _groups(frame):
        cells = list(dict.fromkeys(here["cell"]))
        rows = []
        for values, of_part in here.groupby(keys, sort=False):
            by_cell = dict(list(of_part.groupby("cell", sort=False)))
            rows.append([Entry(str(values[0]), " ".join(map(str, values[1:])))])
            rows[-1] += [entry(by_cell[cell]) if cell in by_cell else Entry("–") for cell in cells]
        grids.append(Grid(title, [part, *cells], rows))
    return grids


def _groups(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (scaling, ranks), part in frame.groupby(["scaling", "ranks"], sort=False):
        batch = number(float(part["global_batch"].iloc[0]), 0)
        yield f"{ranks} rank{'s' * (ranks != 1)}, {scaling} scaling, global batch {batch}", part
