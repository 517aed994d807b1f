"""Pictures of a store: how often table rows are hit, what is missing, how integers are spread."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from meshrec.data.columns import MISSING_ROW
from meshrec.data.describe import CATEGORIES, INTEGERS, SHARED_ROW, Description, bin_label, ranked, table_facts
from meshrec.publish.style import FAINT, INK, OTHER, REFERENCE

WIDTH_INCHES = 7.2
COLUMNS = 7
DRAWN_POINTS = 200
"""Of a curve: ranks evenly spaced on the log axis, whatever the table's size."""


FEW_ROWS = 30
"""Curves of fewer have a point for each, as a line alone would say little."""


def draw_frequencies(description: Description) -> Figure:
    """For each table the hits of its rows by rank, both axes in log scale, the same in all panels."""
    figure, panels = _grid(len(CATEGORIES), 1.15)
    most = max((int(ranked(hits)[:1].sum()) for hits in description.shown.hits), default=1)
    longest = max(fact.hit for fact in table_facts(description))
    for (axes, row, column), name, hits in zip(panels, CATEGORIES, description.shown.hits, strict=True):
        _curve(axes, ranked(hits))
        if description.manifest.vocabulary is not None and hits[SHARED_ROW]:
            _mark_shared(axes, hits)
        axes.set(xscale="log", yscale="log", xlim=(0.7, 2 * longest), ylim=(0.7, 2 * most))
        axes.set_xticks(_powers(longest), [_short(power) for power in _powers(longest)])
        axes.set_yticks(_powers(most), [_short(power) for power in _powers(most)])
        _name(axes, name, f"{int((hits[MISSING_ROW + 1 :] > 0).sum()):,}")
        _outer_labels(axes, row, column, len(CATEGORIES))
    figure.supxlabel("rank of the table row", fontsize=8)
    figure.supylabel(f"hits in {description.shown_rows}", fontsize=8)
    figure.suptitle(_frequency_title(description), fontsize=8, x=0.01, ha="left")
    return figure


def _frequency_title(description: Description) -> str:
    text = (
        f"{description.manifest.name}: hits of table rows, most popular first; after each table's name the rows that are hit."
    )
    if description.manifest.vocabulary is not None:
        return text + "\nVermilion: the row that all rare categories share."
    return text + ("\nCategories are hashed: several may share a row." if description.hashed else "")


def _powers(most: int) -> list[int]:
    """Two to four powers of ten up to the largest number."""
    decades = max(len(str(most)) - 1, 1)
    return [10**power for power in range(0, decades + 1, -(-decades // 3))]


def _short(power: int) -> str:
    return f"{power // 10**9}G" if power >= 10**9 else f"{power // 10**6}M" if power >= 10**6 else _thousands(power)


def _thousands(power: int) -> str:
    return f"{power // 10**3}k" if power >= 10**3 else str(power)


def _curve(axes: Axes, order: NDArray[np.int64]) -> None:
    if not len(order):
        axes.text(0.5, 0.5, "all missing", transform=axes.transAxes, ha="center", fontsize=7, color=FAINT)
        return
    ranks = np.unique(np.geomspace(1, len(order), DRAWN_POINTS).round().astype(np.int64))
    axes.plot(
        ranks, order[ranks - 1], color=REFERENCE, linewidth=1.2, marker="." if len(order) <= FEW_ROWS else None, markersize=3
    )


def _mark_shared(axes: Axes, hits: NDArray[np.int64]) -> None:
    rank = int((hits[MISSING_ROW + 1 :] > hits[SHARED_ROW]).sum()) + 1
    axes.plot([rank], [hits[SHARED_ROW]], "o", color=OTHER, markersize=3.5)


def draw_missing(description: Description) -> Figure:
    """Missing rates of all features."""
    names, rates = INTEGERS + CATEGORIES, 100 * description.shown.missing_rates
    figure = Figure(figsize=(WIDTH_INCHES, 2.4), layout="constrained")
    axes = figure.subplots()
    colours = [REFERENCE] * len(INTEGERS) + [OTHER] * len(CATEGORIES)
    axes.bar(range(len(names)), rates, color=colours, width=0.75)
    for place, rate in enumerate(rates):
        if rate > 0:
            axes.text(place, rate, _percent(rate), ha="center", va="bottom", fontsize=5.5)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6.5)
    axes.set(xlim=(-0.7, len(names) - 0.3), ylim=(0, max(1.0, 1.15 * float(rates.max()))), ylabel="missing, % of rows")
    patches = [Patch(color=REFERENCE, label="integers"), Patch(color=OTHER, label="categories")]
    axes.legend(handles=patches, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_title(f"{description.manifest.name}, {description.shown_rows}; no number: never missing", loc="left")
    return figure


def _percent(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 9.5 else f"{rate:.1f}" if rate >= 0.05 else "<0.1"


def draw_integers(description: Description) -> Figure:
    """Histogram of each integer feature over its present values."""
    figure, panels = _grid(len(INTEGERS), 1.35)
    shown = description.shown
    shares = 100 * shown.histograms / np.maximum(shown.histograms.sum(axis=1, keepdims=True), 1)
    last = max(int(np.flatnonzero(shown.histograms.sum(axis=0))[-1:].sum()), 7)
    ticks = [0, *range(7, last + 1, 6)]
    for (axes, row, column), name, share, gone in zip(panels, INTEGERS, shares, 100 * shown.missing_rates[:13], strict=True):
        axes.bar(range(len(share)), share, color=REFERENCE, width=0.9)
        axes.set(xlim=(-0.8, last + 0.8), ylim=(0, 1.08 * float(shares.max())))
        axes.set_xticks(ticks, [bin_label(place) for place in ticks])
        _name(axes, name, f"{_percent(gone)} % missing" if gone > 0 else "")
        _outer_labels(axes, row, column, len(INTEGERS))
    figure.supxlabel("count: bins 0, 1, 2, 3 to 4, 5 to 8, … by their largest", fontsize=8)
    figure.supylabel("% of present values", fontsize=8)
    title = f"{description.manifest.name}: integers of {description.shown_rows}; negative ones count as 0, as in the store"
    figure.suptitle(title, fontsize=8, x=0.01, ha="left")
    return figure


def _grid(panels: int, height: float) -> tuple[Figure, Iterator[tuple[Axes, int, int]]]:
    """Panels in rows of seven, and their places."""
    rows = -(-panels // COLUMNS)
    figure = Figure(figsize=(WIDTH_INCHES, height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False)
    for unused in axes.ravel()[panels:]:
        unused.set_axis_off()
    places = ((axes[place // COLUMNS, place % COLUMNS], place // COLUMNS, place % COLUMNS) for place in range(panels))
    return figure, places


def _name(axes: Axes, name: str, second: str) -> None:
    axes.set_title(f"$\\bf{{{name}}}$  {second}", loc="left", fontsize=7, color=INK, pad=2)


def _outer_labels(axes: Axes, row: int, column: int, panels: int) -> None:
    """Tick labels at the left and at the lowest panel of each column only."""
    axes.tick_params(labelsize=6, labelleft=column == 0, labelbottom=(row + 1) * COLUMNS + column >= panels)
    axes.minorticks_off()
