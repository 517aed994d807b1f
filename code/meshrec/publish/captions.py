"""What the figures say about themselves, in words."""

import pandas as pd

from meshrec.experiment import Experiment
from meshrec.publish.wording import METRIC_NAMES, margin_text, number


def caption(experiment: Experiment, metric: str, optimum: float | None = None) -> str:
    """Caption of an effect figure; `optimum` is the best reachable value, where it is known."""
    speed = metric == "samples_per_second"
    text = "" if speed else "NE: normalised entropy. "
    text += _left(len(experiment.seeds), speed) + _right(experiment, speed)
    text += " Layout and optimizer are main effects; interaction is what the second optimizer adds to the layout's effect."
    for name, (reference, other) in experiment.analysis.pairs.items():
        text += f" {name}: {other} against {reference}."
    text += _band(experiment, metric)
    if optimum is not None:
        text += f" Planted optimum: {METRIC_NAMES[metric]} {number(optimum, 4)}, the best that any model can reach."
    return text


def margin_of(experiment: Experiment, metric: str) -> str | None:
    """The margin of a metric in words."""
    margin = {str(name): value for name, value in experiment.analysis.margins.items()}.get(metric)
    return None if margin is None else margin_text({"metric": metric, "margin": margin})


def optimum_of(runs: pd.DataFrame, metric: str) -> float | None:
    """Best reachable value of a metric on generated data, the same for all runs; None where it isn't known."""
    column = f"optimum_{metric}"
    known = runs[column].dropna() if column in runs else pd.Series(dtype=float)
    return float(known.iloc[0]) if len(known) else None


def _left(seeds: int, speed: bool) -> str:
    better = f"{'higher' if speed else 'lower'} is better"
    if seeds == 1:
        return f"Left: the one run of each cell ({better}). "
    means = "harmonic means" if speed else "means"
    return f"Left: every run of {seeds} seeds ({better}); thin lines join a seed's runs, thick lines join {means}. "


def _right(experiment: Experiment, speed: bool) -> str:
    seeds, of_logs = len(experiment.seeds), " of log samples/s, the axis in log scale" if speed else ""
    if seeds == 1:
        return f"Right: differences within the one seed{of_logs}; an interval takes two seeds."
    level = f"{100 * experiment.analysis.confidence:g} %"
    return (
        f"Right: diamonds are means of within-seed differences{of_logs}; bars are {level} paired-t intervals over seeds, "
        f"n = {seeds} where no other n is given."
    )


def _band(experiment: Experiment, metric: str) -> str:
    margin = margin_of(experiment, metric)
    if margin is None:
        return ""
    text = f" Band: equivalence margin {margin}"
    if len(experiment.seeds) == 1:
        return text + "."
    level = f"{200 * experiment.analysis.confidence - 100:g} %"
    return text + f"; equivalent (TOST) where the {level} interval, shorter than the bar, lies inside it."
