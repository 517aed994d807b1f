"""What a cell asks its ranks to build: mesh, plan, and the order in which a rank takes its samples."""

import numpy as np
from numpy.typing import NDArray

from meshrec.embeddings.optimizers import row_optimizer
from meshrec.embeddings.plan import Plan, TableShape
from meshrec.embeddings.planner import make_plan
from meshrec.experiment.cells import Cell
from meshrec.mesh.layout import MeshLayout


def is_virtual(cell: Cell) -> bool:
    """Whether one process computes what the cell's groups compute."""
    return cell.experiment.training.execution == "virtual"


def processes(cell: Cell) -> int:
    """Processes that run the cell: T, or one."""
    return 1 if is_virtual(cell) else cell.ranks


def local_twins(cell: Cell) -> int:
    """Replicas on one rank: one, or all M of them."""
    return cell.layout_level.replicas if is_virtual(cell) else 1


def mesh_layout(cell: Cell) -> MeshLayout:
    """The mesh of the processes that run the cell."""
    if is_virtual(cell):
        return MeshLayout(1, 1)
    return MeshLayout(cell.ranks, cell.layout_level.replicas, cell.layout_level.rank_order)


def table_shapes(cell: Cell) -> list[TableShape]:
    """Rows, columns and ids a sample of every table."""
    model, rows = cell.experiment.model, cell.experiment.dataset.rows_of_tables
    return [TableShape(*shape) for shape in zip(rows, model.dims_of_tables, model.hots_of_tables, strict=True)]


def make_cell_plan(cell: Cell, frequencies: list[NDArray[np.int64]] | None = None) -> Plan:
    """Who holds what in one of the cell's sharding groups.

    Args:
        cell: what is run.
        frequencies: how often the training samples ask for each row; a planned sharding wants them.

    Raises:
        PlanError: the tables can't be sharded as asked.
    """
    layout = cell.layout_level
    if is_virtual(cell):  # a group's mathematics doesn't depend on its sharding, and one process holds everything
        layout = layout.model_copy(update={"sharding": "table-wise", "tables": {}, "memory_limit": None})
        return make_plan(table_shapes(cell), 1, layout, 0, None)
    return make_plan(
        table_shapes(cell),
        cell.shards,
        layout,
        optimizer_state_bytes(cell),
        frequencies,
        batch=cell.global_batch // layout.replicas,
        replicas=cell.optimizer_level.kind != "density_scaled_rowwise_adagrad",  # it counts hits where whole batches arrive
    )


def optimizer_state_bytes(cell: Cell) -> int:
    """Bytes of optimizer state a row, of the widest table where it has as many numbers as the row."""
    optimizer = row_optimizer(cell.optimizer_level, cell.layout_level.sync_moments == "lagged")
    widest = max(cell.experiment.model.dims_of_tables)
    return 4 * sum(width or widest for width in optimizer.state_widths().values())


def samples_by_twin(cell: Cell) -> NDArray[np.int64] | None:
    """[global batch] order in which the virtual mesh takes a batch: the samples of group 0, those of group 1, …; else None."""
    if not is_virtual(cell) or cell.layout_level.replicas == 1:
        return None
    part = cell.global_batch // cell.ranks
    groups = MeshLayout(cell.ranks, cell.layout_level.replicas, cell.layout_level.rank_order).sharding_groups()
    return np.concatenate([np.arange(rank * part, (rank + 1) * part) for group in groups for rank in group])
