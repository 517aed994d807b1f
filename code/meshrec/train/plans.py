"""The sharding plans of an experiment, as its runs make them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshrec.data.store import open_store
from meshrec.embeddings.load import access_frequencies
from meshrec.embeddings.plan import Plan, PlanError
from meshrec.embeddings.plan_loads import PlanLoads, plan_loads
from meshrec.embeddings.planner import describe_plan
from meshrec.experiment.cells import Cell, cells_of
from meshrec.experiment.schema import Experiment
from meshrec.train.setup import is_virtual, make_cell_plan, optimizer_state_bytes

Frequencies = list[NDArray[np.int64]]


@dataclass(frozen=True)
class CellPlan:
    """One plan, and the cells that have it and its loads in common."""

    plan: Plan
    cells: list[Cell]
    frequencies: Frequencies | None

    @property
    def loads(self) -> PlanLoads:
        """What ranks of a group hold and are asked for."""
        return plan_loads(self.plan, self.frequencies, optimizer_state_bytes(self.cells[0]))

    def text(self) -> str:
        """Its cells, and the plan as tables."""
        first = self.cells[0]
        where = ", ".join(f"{cell.name} at {cell.ranks} ranks" for cell in self.cells)
        note = " (virtual: one process holds all tables)" if is_virtual(first) else ""
        batch = first.global_batch // first.layout_level.replicas
        return f"{where}{note}\n{describe_plan(self.plan, self.frequencies, optimizer_state_bytes(first), batch)}"


def cell_plans(experiment: Experiment, layout: str | None, ranks: int | None, store: Path | None) -> list[CellPlan]:
    """Plans of all cells, or of those of one layout or rank count, each once.

    Args:
        experiment: the experiment.
        layout: label of a layout; all when left out.
        ranks: a rank count; all when left out.
        store: folder of the prepared data set, which a planned sharding needs, and which says how often rows are asked for.

    Raises:
        PlanError: no such cells; tables can't be sharded as asked; or the store holds other tables.
        StoreError: the store can't be read.
    """
    cells = list(_chosen(experiment, layout, ranks))
    frequencies = _frequencies(experiment, store) if store else None
    found: dict[tuple[str, int, int], CellPlan] = {}
    for cell in cells:
        plan = make_cell_plan(cell, frequencies)
        key = plan.hash, optimizer_state_bytes(cell), cell.global_batch // cell.layout_level.replicas
        found.setdefault(key, CellPlan(plan, [], frequencies)).cells.append(cell)
    return list(found.values())


def _chosen(experiment: Experiment, layout: str | None, ranks: int | None) -> Iterator[Cell]:
    for name, value, known in (("layout", layout, list(experiment.layouts)), ("ranks", ranks, experiment.ranks)):
        if value is not None and value not in known:
            raise PlanError(f"experiment {experiment.name} has no {name} {value}; it has {known}")
    cells = [cell for count in experiment.ranks for cell in cells_of(experiment, count, experiment.seeds[0])]
    chosen = [cell for cell in cells if layout in (None, cell.layout) and ranks in (None, cell.ranks)]
    if not chosen:
        raise PlanError(f"experiment {experiment.name} doesn't run layout {layout} at {ranks} ranks")
    yield from chosen


def _frequencies(experiment: Experiment, store: Path) -> Frequencies:
    data, rows = open_store(store), experiment.dataset.rows_of_tables
    if data.manifest.table_rows != rows:
        raise PlanError(f"{store}: has tables of {data.manifest.table_rows} rows, but experiment {experiment.name} of {rows}")
    return access_frequencies(data.train, rows, experiment.model.hots_of_tables)
