"""The 2 × 2 effect figure: one row per rank count, left what was measured, right what layout and optimizer each changed."""

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
from meshrec.publish.style import BAND, FAINT, INK, OTHER, REFERENCE, WIDTH_INCHES

LABELS = {"ne": "NE", "samples_per_second": "samples/s"}
ROW_INCHES, HEAD_INCHES, FOOT_INCHES = 1.4, 0.3, 0.98
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
    """Rows of `contrasts.csv`, at most one for each of `EFFECTS`; in log units for samples/s."""

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
        """All that the row shows, long: kind is `run`, `mean` or `contrast`."""
        runs = self.runs.rename(columns={self.metric: "value"}).assign(kind="run")
        cells = self.runs[["layout", "optimizer"]].drop_duplicates()
        means = cells.assign(kind="mean", value=[self.mean(*cell) for cell in cells.itertuples(index=False)])
        shown = ["comparison", "n", "estimate", "ci_low", "ci_high", "margin", "verdict"]
        contrasts = self.contrasts[shown].rename(columns={"estimate": "value"}).assign(kind="contrast")
        columns = [
            *("metric", "ranks", "scaling", "kind", "layout", "optimizer", "seed", "comparison"),
            *("value", "ci_low", "ci_high", "margin", "n", "verdict"),
        ]
        parts = [part.astype(object) for part in (runs, means, contrasts) if len(part)]
        joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        return joined.assign(metric=self.metric, ranks=self.ranks, scaling=self.scaling).reindex(columns=columns)


def draw_effects(experiment: Experiment, metric: str, panels: list[Panel]) -> Figure:
    """Draw the figure. Panels in the order of their rows."""
    height = HEAD_INCHES + FOOT_INCHES + ROW_INCHES * len(panels)
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    bottom, top = FOOT_INCHES / height, 1 - HEAD_INCHES / height
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, bottom, 1, top - bottom), hspace=0.02, wspace=0.02)  # type: ignore[call-arg]
    axes = figure.subplots(len(panels), 2, squeeze=False, sharex="col", width_ratios=[1, 1.15])
    for (left, right), panel in zip(axes, panels, strict=True):
        _draw_runs(left, experiment, panel)
        _draw_contrasts(right, experiment, panel)
    _scales(axes, metric, panels)
    _legend(figure, experiment, metric)
    figure.text(0.02, 0.006, _explanation(experiment, metric), fontsize=6.5, va="bottom", linespacing=1.25)
    return figure


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


def _draw_contrasts(axes: Axes, experiment: Experiment, panel: Panel) -> None:
    """Estimates with intervals, the margin as a band, the verdict in words."""
    factorial = experiment.analysis.factorial
    axes.set_ylim(-0.45, len(EFFECTS) - 0.2)
    if panel.contrasts.empty:
        missing = [layout for layout in factorial.layouts if layout not in set(panel.runs["layout"])]
        text = f"no {' or '.join(missing) or 'complete 2 × 2'} here:\nnothing to contrast"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=FAINT, fontsize=7)
        axes.set_axis_off()
        return
    rows = panel.contrasts.set_index("comparison")
    margin = rows["margin"].iloc[0]
    if pd.notna(margin):
        axes.axvspan(-margin, margin, color=BAND, lw=0, zorder=0)
    axes.axvline(0, color=FAINT, lw=0.7, zorder=1)
    minus = [f"{pair[1]} − {pair[0]}" for pair in (factorial.layouts, factorial.optimizers)]
    if panel.metric == "samples_per_second":
        minus = [text.replace(" − ", " / ") for text in minus]
    names = {"layout": f"layout\n{minus[0]}", "optimizer": f"optimizer\n{minus[1]}", "interaction": "interaction"}
    for place, effect in zip(reversed(range(len(EFFECTS))), EFFECTS, strict=True):
        _draw_contrast(axes, rows.loc[[effect]].iloc[0].to_dict(), place, len(experiment.seeds))
    axes.set_yticks(list(reversed(range(len(EFFECTS)))), [names[effect] for effect in EFFECTS])
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelbottom=True)
    axes.spines["left"].set_visible(False)


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
        change = "change in samples/s"
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
        row.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(100 * math.expm1(value), "+.3g", " %")))


def _signed(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}".replace("-", "−") if abs(value) > 1e-12 else "0"


def _legend(figure: Figure, experiment: Experiment, metric: str) -> None:
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=color, marker=marker, lw=1.8, ms=5, mec="white", label=f"optimizer {label}")
        for label, color, marker, _ in _optimizer_looks(experiment)
    ]
    margin = _margin_text(experiment, metric)
    if margin:
        handles.append(Patch(color=BAND, label=f"margin {margin}"))
    figure.legend(handles=handles, loc="upper left", ncols=3, frameon=False, handlelength=1.4, columnspacing=1.2)


def _margin_text(experiment: Experiment, metric: str) -> str | None:
    margin = {str(name): value for name, value in experiment.analysis.margins.items()}.get(metric)
    if margin is None:
        return None
    return f"×/÷ {math.exp(margin):.3f}" if metric == "samples_per_second" else f"±{margin:g}"


def _explanation(experiment: Experiment, metric: str) -> str:
    level, seeds = f"{100 * experiment.analysis.confidence:g} %", len(experiment.seeds)
    speed = metric == "samples_per_second"
    text = "" if speed else "NE: normalised entropy. "
    text += f"Left: every run of {seeds} seeds ({'higher' if speed else 'lower'} is better); thin lines join a seed's runs, "
    text += f"thick lines join {'harmonic means' if speed else 'means'}. Right: diamonds are means of within-seed differences"
    text += f"{' of log samples/s, the axis in log scale' if speed else ''}; bars are {level} paired-t intervals over seeds, "
    text += f"n = {seeds} where no other n is given. Layout and optimizer are main effects; interaction is what the second "
    text += "optimizer adds to the layout's effect."
    if _margin_text(experiment, metric):
        text += (
            f" Band: equivalence margin {_margin_text(experiment, metric)}, fixed before the runs; equivalent (TOST) where the "
        )
        text += f"{200 * experiment.analysis.confidence - 100:g} % interval, shorter than the bar, lies inside it."
    return "\n".join(textwrap.wrap(text, 86))
