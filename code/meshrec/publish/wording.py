"""Numbers and verdicts in words: what the report says of a row of `contrasts.csv`."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from meshrec.experiment import Experiment
from meshrec.publish.predictions import predicted_none

METRIC_NAMES = {"ne": "NE", "logloss": "logloss", "auc": "AUC", "samples_per_second": "samples/s"}

NO_BREAK = "\u00a0"
"""Space that holds a number and its unit on one line."""
UP_OR_DOWN = "×/\u2060÷"
"""With a word joiner, so that no line ends after the slash."""

CHECK = "Arithmetic predicts no difference here (same kernel parameters, same averaging): a check of the code, not evidence."
CHECK_FAILED = CHECK.removesuffix("not evidence.") + "which it doesn't pass."

Row = Mapping[Any, Any]


# --- numbers ----------------------------------------------------------------------------------------------------------


def number(value: float, decimals: int, *, sign: bool = False) -> str:
    """Fixed decimals, thousands separated, a real minus; – where there is no number, ∞ where it has no bound."""
    if _missing(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:+,.{decimals}f}" if sign else f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def p_text(p: float) -> str:
    """P value to three decimals."""
    return "–" if _missing(p) else f"<{NO_BREAK}0.001" if p < 0.001 else f"{p:.3f}"


def p_clause(name: str, p: float) -> str:
    """`name = 0.012` or `name < 0.001`."""
    text = p_text(p) if p < 0.001 else f"= {p_text(p)}"
    return f"{name} {text}".replace(" ", NO_BREAK)


def bytes_text(value: float) -> str:
    """Bytes in decimal units, three significant digits."""
    if _missing(value):
        return "–"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= 0.9995 * size:
            return f"{_three_digits(value / size)} {unit}"
    return f"{_three_digits(value)} B" if value else "0"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, three significant digits."""
    return "–" if _missing(seconds) else _three_digits(1000 * seconds) if seconds else "0"


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    *front, last = parts
    return f"{', '.join(front)} and {last}" if front else last


def rank_counts(ranks: Iterable[int]) -> str:
    """`1 rank`, `2 and 4 ranks`."""
    ranks = list(dict.fromkeys(ranks))
    return f"{listed(map(str, ranks))}{NO_BREAK}rank{'s' * (ranks != [1])}"


def _three_digits(value: float) -> str:
    rounded = float(f"{value:.2e}")
    return number(rounded, min(max(0, 2 - math.floor(math.log10(abs(rounded)))), 6))


def _missing(value: Any) -> bool:
    return bool(pd.isna(value))


# --- contrasts --------------------------------------------------------------------------------------------------------


def estimate_text(row: Row) -> str:
    """Estimate with its interval: `+0.0012 [−0.0003, +0.0027]`, for samples/s `+16.0 % [+8.1 %, +24.5 %]`."""
    speed = row["metric"] == "samples_per_second"
    values = [100 * math.expm1(row[key]) if speed else row[key] for key in ("estimate", "ci_low", "ci_high")]
    if _missing(values[0]):
        return "not estimated"
    width = values[0] if _missing(values[1]) else values[2] - values[1]
    decimals = min(max(1 if speed else 4, _decimals(width)), 9)
    middle, low, high = (number(value, decimals, sign=True) + (f"{NO_BREAK}%" if speed else "") for value in values)
    return middle if _missing(row["ci_low"]) else f"{middle} [{low}, {high}]"


def _decimals(width: float) -> int:
    """Decimals that leave an interval two digits."""
    return 0 if not width or not math.isfinite(width) else 1 - math.floor(math.log10(abs(width)))


def margin_text(row: Row) -> str:
    """`±0.005`, for samples/s `×/÷ 1.105`; – without a margin."""
    if _missing(row["margin"]):
        return "–"
    return (
        f"{UP_OR_DOWN}{NO_BREAK}{math.exp(row['margin']):.3f}"
        if row["metric"] == "samples_per_second"
        else f"±{row['margin']:g}"
    )


def margins_text(experiment: Experiment) -> str:
    """All margins, with what a margin of a ratio means; empty without any."""
    said = [_margin_meaning(str(metric), value) for metric, value in experiment.analysis.margins.items()]
    return f"Margins of equivalence: {'; '.join(said)}." if said else ""


def _margin_meaning(metric: str, margin: float) -> str:
    text = f"{METRIC_NAMES[metric]} {margin_text({'metric': metric, 'margin': margin})}"
    if metric == "samples_per_second":
        text += f" ({margin:g} in units of the natural logarithm: a factor of {math.exp(margin):.3f} up or down)"
    return text


def sentence(experiment: Experiment, row: Row) -> str:
    """One contrast as a sentence: what changed by how much, where, and the verdict with what it rests on."""
    where = f"at {rank_counts([row['ranks']])}"
    if len(experiment.scaling) > 1:
        where += f", {row['scaling']} scaling"
    text = f"{_what_changed(experiment, row)} by {estimate_text(row)} {where}: {_because(experiment, row)}"
    if row["n"] < 1:
        text = text.replace(" by not estimated", " by an unknown amount")
    text += (f"; {row['note']}" if not _missing(row["note"]) else "") + "."
    if predicted_none(experiment, row["comparison"], row["metric"]):
        text += f" {CHECK_FAILED if row['verdict'] == 'different' else CHECK}"
    return text


def _what_changed(experiment: Experiment, row: Row) -> str:
    factorial, metric, name = experiment.analysis.factorial, METRIC_NAMES[row["metric"]], row["comparison"]
    (layout_0, layout_1), (optimizer_0, optimizer_1) = factorial.layouts, factorial.optimizers
    if name == "layout":
        return f"The {layout_1} layout (against {layout_0}, mean over optimizers) changed {metric}"
    if name == "optimizer":
        return f"The {optimizer_1} optimizer (against {optimizer_0}, mean over layouts) changed {metric}"
    if name == "interaction":
        return f"Interaction: {optimizer_1} in place of {optimizer_0} changed the effect of {layout_1} on {metric}"
    reference, other = experiment.analysis.pairs[name]
    return f"Pair {name}: {other} against {reference} changed {metric}"


def _because(experiment: Experiment, row: Row) -> str:
    """The verdict and the numbers that decided it."""
    n, verdict, margin = f"n{NO_BREAK}={NO_BREAK}{row['n']}", row["verdict"], margin_text(row)
    adjusted = p_clause("adjusted p", row["p_adjusted"])
    if verdict == "equivalent":
        alpha = 1 - experiment.analysis.confidence
        small = f"; there is a difference ({adjusted}), but smaller than the margin" if row["p_adjusted"] < alpha else ""
        return f"equivalent within {margin} ({p_clause('TOST p', row['p_tost'])}, {n}){small}"
    if verdict == "different":
        return f"different ({adjusted}, {n})"
    if verdict == "too few seeds":
        return _too_few(row)
    if verdict == "no margin":
        return f"no margin: no difference is shown ({adjusted}, {n}), and equivalence can't be tested without a margin"
    return (
        f"inconclusive: neither a difference ({adjusted}) nor equivalence within {margin} "
        f"({p_clause('TOST p', row['p_tost'])}) is shown, {n}, power about {lower_power(row):.2f}"
    )


def _too_few(row: Row) -> str:
    if row["n"] < 2:
        return f"too few seeds: {row['n']}, and an interval takes two"
    needed = f"about {row['n_needed']:,.0f} seeds" if not _missing(row["n_needed"]) else "not even 10,000 seeds"
    return (
        f"too few seeds: {row['n']}, power about {lower_power(row):.2f} for the margin {margin_text(row)}; {needed} would have "
        f"0.80, if the spread stays as in these {row['n']} seeds"
    )


def lower_power(row: Row) -> float:
    """The smaller of the powers to find a difference of the margin and to show equivalence; NaN without a margin."""
    return float(min(row["power"], row["power_tost"]))


def verdict_text(row: Row) -> str:
    """Verdict for a table. Logloss has none of its own."""
    return "see NE" if _missing(row["verdict"]) else str(row["verdict"])
