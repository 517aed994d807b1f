"""A sharding plan as a picture: what each rank holds and is asked for, table by table."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from meshrec.embeddings.plan import Plan, PlanError
from meshrec.embeddings.plan_loads import PlanLoads
from meshrec.publish.files import whole_file
from meshrec.publish.style import INK, styled

MOST_RANKS = 256
"""More would be thinner than a line."""

COLOURS = {"whole": "#0072B2", "rows split": "#E69F00", "columns split": "#56B4E9", "replicated": "#bbbbbb"}
"""Of Okabe and Ito, apart in grey too."""
LETTERS = {"whole": "white", "rows split": INK, "columns split": INK, "replicated": INK}


def write_plan_picture(plan: Plan, loads: PlanLoads, measured: bool, file: Path) -> None:
    """Write the picture in the format that the file's suffix says: .png, .pdf or .svg.

    Raises:
        PlanError: more ranks than a picture shows.
    """
    if plan.owners > MOST_RANKS:
        raise PlanError(f"a plan over {plan.owners} ranks can't be seen in a picture, which shows at most {MOST_RANKS}")
    with styled(), whole_file(file) as partial:
        draw_plan(plan, loads, measured).savefig(partial)


def draw_plan(plan: Plan, loads: PlanLoads, measured: bool) -> Figure:
    """Ranks from top to bottom; bytes to the left, lookups to the right, each bar stacked by table.

    Args:
        plan: who holds what.
        loads: what ranks hold and are asked for.
        measured: whether lookups were measured, not taken to be spread evenly over a table's rows.
    """
    rank_inches = 0.27 if plan.owners <= 32 else 8.6 / plan.owners
    figure = Figure(figsize=(8.4, 1.15 + rank_inches * max(plan.owners, 2)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    scale, unit = _unit(float(loads.memory_of.sum(axis=1).max()))
    _stack(left, loads.memory_of / scale, plan)
    _stack(right, loads.lookups_of, plan)
    left.set(xlabel=f"rows and optimizer state, {unit}", ylabel="rank of the group", ylim=(plan.owners - 0.5, -0.5))
    right.set(xlabel=f"lookups for a sample of the group{'' if measured else ', if rows were asked for alike'}")
    left.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=16, min_n_ticks=1))
    kinds = {_kind(plan, table) for table in range(len(plan.tables))}
    patches = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items() if kind in kinds]
    handles = [*patches, Line2D([], [], color=INK, lw=0.8, ls="--", label="mean rank")]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False)
    return figure


def _stack(axes: Axes, values: NDArray[np.float64], plan: Plan) -> None:
    """One bar a rank from values [N, F], with a table's number where there is room for it, and a line at the mean rank."""
    starts = np.cumsum(values, axis=1) - values
    widest = float(values.sum(axis=1).max())
    for table in range(values.shape[1]):
        ranks = np.flatnonzero(values[:, table])
        kind = _kind(plan, table)
        edge = 0.4 if plan.owners <= 32 else 0.0
        axes.barh(ranks, values[ranks, table], 0.8, starts[ranks, table], color=COLOURS[kind], edgecolor="white", lw=edge)
        for rank in ranks[values[ranks, table] > 0.03 * widest].tolist() if plan.owners <= 32 else []:
            centre = starts[rank, table] + values[rank, table] / 2
            axes.text(centre, rank, str(table), ha="center", va="center", fontsize=6, color=LETTERS[kind])
    axes.axvline(float(values.sum(axis=1).mean()), color=INK, lw=0.8, ls="--")


def _kind(plan: Plan, table: int) -> str:
    if table in plan.replicated:
        return "replicated"
    shard = next(shard for shard in plan.shards if shard.table == table)
    if shard.width < shard.table_dim:
        return "columns split"
    return "rows split" if shard.rows < shard.table_rows else "whole"


def _unit(most: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if most >= scale:
            return scale, unit
    return 1.0, "bytes"
