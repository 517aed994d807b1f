"""The 2 × 2 effect figure: one row per rank count, left what was measured, right what layout, optimizer and pairs changed."""

import math
import textwrap
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from meshrec.experiment import Experiment
from meshrec.publish.captions import caption, margin_of
from meshrec.publish.style import BAND, FAINT, INK, NARROW_INCHES, OTHER, REFERENCE, WIDTH_INCHES
from meshrec.publish.wording import number

LABELS = {"ne": "NE", "samples_per_second": "samples/s"}
HEAD_INCHES, CAPTION_LINE_INCHES, PLACE_INCHES = 0.17, 0.118, 0.35
"""Height of a line of the legend, of a line of the caption, and of an estimate."""
EFFECTS = ("layout", "optimizer", "interaction")


@dataclass(frozen=True)
class Panel:
    """Numbers of one row of the figure."""

    ranks: int
    scaling: str
    metric: str
    runs: pd.DataFrame
    """Finished runs of the 2 × 2: layout, optimizer, seed and the metric."""
    contrasts: pd.DataFrame
    """Rows of `contrasts.csv`, at most one for each of `EFFECTS` and of the pairs; in log units for samples/s."""
    optimum: float | None = None
    """Best reachable value of the metric, where it is known."""

    def mean(self, layout: str, optimizer: str) -> float:
        """Mean over seeds of one cell: harmonic for rates. NaN without runs."""
        values = self.of(layout, optimizer)[self.metric].to_numpy(dtype=float)
        if not len(values):
            return math.nan
        return float(1 / np.mean(1 / values) if self.metric == "samples_per_second" else np.mean(values))

    def of(self, layout: str, optimizer: str) -> pd.DataFrame:
        """Runs of one cell."""
        return self.runs[(self.runs["layout"] == layout) & (self.runs["optimizer"] == optimizer)]

    def table(self) -> pd.DataFrame:
        """All that the row shows, long: kind is `run`, `mean`, `contrast` or `optimum`."""
        runs = self.runs.rename(columns={self.metric: "value"}).assign(kind="run")
        cells = self.runs[["layout", "optimizer"]].drop_duplicates()
        means = cells.assign(kind="mean", value=[self.mean(*cell) for cell in cells.itertuples(index=False)])
        shown = ["comparison", "n", "estimate", "ci_low", "ci_high", "margin", "verdict"]
        contrasts = self.contrasts[shown].rename(columns={"estimate": "value"}).assign(kind="contrast")
        columns = [
            *("metric", "ranks", "scaling", "kind", "layout", "optimizer", "seed", "comparison"),
            *("value", "ci_low", "ci_high", "margin", "n", "verdict"),
        ]
        best = pd.DataFrame({"kind": ["optimum"], "value": [self.optimum]} if self.optimum is not None else {})
        parts = [part.astype(object) for part in (runs, means, contrasts, best) if len(part)]
        joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        return joined.assign(metric=self.metric, ranks=self.ranks, scaling=self.scaling).reindex(columns=columns)


def draw_effects(experiment: Experiment, metric: str, panels: list[Panel], *, narrow: bool = False) -> Figure:
    """Draw the figure. Panels in the order of their rows; `narrow` is for a phone, without caption."""
    rows = [*EFFECTS, *(name for name in experiment.analysis.pairs if any(name in _compared(panel) for panel in panels))]
    text = "" if narrow else textwrap.fill(_plain(caption(experiment, metric, panels[0].optimum)), 86)
    head = HEAD_INCHES * math.ceil(len(_handles(experiment, metric, panels)) / 2) + 0.1
    foot = CAPTION_LINE_INCHES * len(text.splitlines()) + 0.06
    height = head + foot + (PLACE_INCHES * (len(rows) + 1)) * len(panels)
    figure = Figure(figsize=(NARROW_INCHES if narrow else WIDTH_INCHES, height), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, foot / height, 1, 1 - (head + foot) / height), hspace=0.02, wspace=0.02)  # type: ignore[call-arg]
    axes = figure.subplots(len(panels), 2, squeeze=False, sharex="col", width_ratios=[1, 1.15])
    for (left, right), panel in zip(axes, panels, strict=True):
        _draw_runs(left, experiment, panel)
        _draw_contrasts(right, experiment, panel, rows)
    _scales(axes, metric, panels)
    _draw_optimum(axes, panels)
    look: dict[str, Any] = {"frameon": False, "handlelength": 1.4, "columnspacing": 1.2, "labelspacing": 0.3}
    figure.legend(handles=_handles(experiment, metric, panels), loc="upper left", ncols=2, **look)
    figure.text(0.02, 0.006, text, fontsize=6.5, va="bottom", linespacing=1.25)
    return figure


def _compared(panel: Panel) -> set[str]:
    return set(panel.contrasts["comparison"]) if len(panel.contrasts) else set()


# --- left: runs -------------------------------------------------------------------------------------------------------


def _draw_runs(axes: Axes, experiment: Experiment, panel: Panel) -> None:
    """Points of the seeds, a seed's points joined, and the means on top."""
    factorial = experiment.analysis.factorial
    for optimizer, color, marker, shift in _optimizer_looks(experiment):
        places = [place + shift for place in range(len(factorial.layouts))]
        cells = [panel.of(layout, optimizer).set_index("seed")[panel.metric] for layout in factorial.layouts]
        for seed in sorted(set().union(*(cell.index for cell in cells))):
            values = [float(cell.get(seed, math.nan)) for cell in cells]
            axes.plot(places, values, color=color, lw=0.6, alpha=0.45, marker=marker, ms=2.6, mew=0, zorder=2)
        means = [panel.mean(layout, optimizer) for layout in factorial.layouts]
        axes.plot(places, means, color=color, lw=1.8, marker=marker, ms=6, mec="white", mew=0.8, zorder=3)
    axes.set_xticks(range(len(factorial.layouts)), factorial.layouts)
    axes.tick_params(labelbottom=True)
    axes.set_xlim(-0.4, len(factorial.layouts) - 0.6)
    several = len(experiment.scaling) > 1
    title = f"{panel.ranks} rank{'s' * (panel.ranks > 1)}" + (f", {panel.scaling} scaling" if several else "")
    axes.set_title(title, loc="left", fontweight="bold", pad=4)
    axes.set_ylabel(LABELS[panel.metric])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    if panel.runs.empty:
        axes.text(0.5, 0.5, "no finished run", ha="center", va="center", transform=axes.transAxes, color=FAINT)


def _optimizer_looks(experiment: Experiment) -> list[tuple[str, str, str, float]]:
    """Label, colour, marker and sideways shift of the two optimizers."""
    reference, other = experiment.analysis.factorial.optimizers
    return [(reference, REFERENCE, "o", -0.06), (other, OTHER, "s", 0.06)]


# --- right: contrasts -------------------------------------------------------------------------------------------------


def _draw_contrasts(axes: Axes, experiment: Experiment, panel: Panel, rows: list[str]) -> None:
    """Estimates with intervals, the margin as a band, the verdict in words."""
    axes.set_ylim(-0.45, len(rows) - 0.2)
    if panel.contrasts.empty:
        missing = [layout for layout in experiment.analysis.factorial.layouts if layout not in set(panel.runs["layout"])]
        text = f"no {' or '.join(missing) or 'complete 2 × 2'} here:\nnothing to contrast"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=FAINT, fontsize=7)
        axes.set_axis_off()
        return
    found = panel.contrasts.set_index("comparison")
    margin = found["margin"].iloc[0]
    if pd.notna(margin):
        axes.axvspan(-margin, margin, color=BAND, lw=0, zorder=0)
    axes.axvline(0, color=FAINT, lw=0.7, zorder=1)
    places = dict(zip(rows, reversed(range(len(rows))), strict=True))
    for name in found.index:
        _draw_contrast(axes, found.loc[[name]].iloc[0].to_dict(), places[name], len(experiment.seeds))
    names = _row_names(experiment, panel.metric)
    axes.set_yticks([places[name] for name in rows], [names[name] for name in rows])
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelbottom=True)
    axes.spines["left"].set_visible(False)


def _row_names(experiment: Experiment, metric: str) -> dict[str, str]:
    """Label of each comparison, with what was set against what."""
    factorial, between = experiment.analysis.factorial, " / " if metric == "samples_per_second" else " − "
    minus = [f"{pair[1]}{between}{pair[0]}" for pair in (factorial.layouts, factorial.optimizers)]
    names = {"layout": f"layout\n{minus[0]}", "optimizer": f"optimizer\n{minus[1]}", "interaction": "interaction"}
    return names | {name: name for name in experiment.analysis.pairs}


def _draw_contrast(axes: Axes, row: dict[Hashable, Any], place: int, seeds: int) -> None:
    axes.plot([row["ci_low"], row["ci_high"]], [place, place], color=INK, lw=1.3, zorder=3, solid_capstyle="butt")
    axes.plot(row["estimate"], place, color=INK, marker="D", ms=4, mec="white", mew=0.6, zorder=4)
    text = str(row["verdict"]) + (f" (n = {row['n']:.0f})" if row["n"] != seeds else "")
    weight = "bold" if row["verdict"] in ("different", "equivalent") else "normal"
    look: dict[str, Any] = {"fontsize": 6.5, "ha": "center", "va": "bottom", "weight": weight}
    axes.text(0.5, place + 0.2, text, transform=axes.get_yaxis_transform(), **look)


# --- frame ------------------------------------------------------------------------------------------------------------


def _scales(axes: "np.ndarray[tuple[int, int], np.dtype[np.object_]]", metric: str, panels: list[Panel]) -> None:
    """Same scale of the contrasts in every row; of the runs too for quality, which shouldn't depend on the rank count."""
    shown = pd.concat([panel.contrasts for panel in panels])
    bounds = shown[["estimate", "ci_low", "ci_high"]].to_numpy(dtype=float)
    margin = shown["margin"].max() if shown["margin"].notna().any() else 0.0
    limit = max(float(np.nanmax(np.abs(bounds), initial=0.0)), 1.15 * margin) * 1.08 or 1.0
    for row in axes[:, 1]:
        row.set_xlim(-limit, limit)
    if metric == "samples_per_second":
        _percent_ticks(axes[:, 1], limit)
        for row in axes[:, 0]:
            row.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        change = "change, %"
    else:
        limits = [row.get_ylim() for row, panel in zip(axes[:, 0], panels, strict=True) if len(panel.runs)]
        for row in axes[:, 0] if limits else []:
            row.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        for row in axes[:, 1]:
            row.xaxis.set_major_locator(MaxNLocator(4, symmetric=True))
            row.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(value, "+.4g")))
        change = f"change in {LABELS[metric]}"
    axes[-1, 0].set_xlabel("layout")
    axes[-1, 1].set_xlabel(change)


def _percent_ticks(axes: "np.ndarray[tuple[int], np.dtype[np.object_]]", limit: float) -> None:
    """Ticks at the largest round percentage that fits on both sides of an axis of log ratios."""
    largest = -100 * math.expm1(-limit)
    power = 10.0 ** math.floor(math.log10(largest))
    percent = max(step * power for step in (1, 2, 5) if step * power <= largest)
    places = [math.log1p(change / 100) for change in (-percent, 0, percent)]
    for row in axes:
        row.xaxis.set_major_locator(FixedLocator(places))
        row.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(100 * math.expm1(value), "+.3g")))


def _plain(text: str) -> str:
    """Text without the word joiner, for which fonts have no glyph."""
    return text.replace("\u2060", "")


def _signed(value: float, form: str) -> str:
    return f"{value:{form}}".replace("-", "−") if abs(value) > 1e-12 else "0"


def _handles(experiment: Experiment, metric: str, panels: list[Panel]) -> list[Line2D | Patch]:
    """What the legend explains."""
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=color, marker=marker, lw=1.8, ms=5, mec="white", label=f"optimizer {label}")
        for label, color, marker, _ in _optimizer_looks(experiment)
    ]
    margin, best = margin_of(experiment, metric), panels[0].optimum
    if margin:
        handles.append(Patch(color=BAND, label=f"margin {_plain(margin)}"))
    if best is not None:
        where = "" if _fits(panels) else " (off axis)"
        handles.append(Line2D([], [], color=INK, lw=0.9, ls=":", label=f"optimum {number(best, 4)}{where}"))
    return handles


def _draw_optimum(axes: "np.ndarray[tuple[int, int], np.dtype[np.object_]]", panels: list[Panel]) -> None:
    """The best reachable value as a line, where the axis doesn't have to shrink the runs for it."""
    best = panels[0].optimum
    if best is None or not _fits(panels):
        return
    for row, panel in zip(axes[:, 0], panels, strict=True):
        low, high = row.get_ylim()
        pad = 0.05 * (high - low)
        row.set_ylim(min(low, best - pad), max(high, best + pad))
        if len(panel.runs):
            row.axhline(best, color=INK, lw=0.9, ls=":", zorder=1)


def _fits(panels: list[Panel]) -> bool:
    """Whether the optimum is so near the runs that the axis grows by half at most."""
    best, values = panels[0].optimum, pd.concat([panel.runs[panel.metric].astype(float) for panel in panels])
    if best is None or values.empty:
        return False
    low, high = values.min(), values.max()
    return bool(low - (high - low) / 2 <= best <= high + (high - low) / 2)
