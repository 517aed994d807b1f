"""Layouts, optimizers and kernels that don't go together: refused by name before anything runs."""

from collections.abc import Iterator

from meshrec.experiment.cells import Cell, cells_of
from meshrec.experiment.schema import Experiment

Problem = tuple[tuple[str | int, ...], str]

OTHER_KERNELS = "set training.kernel to numba or torch"


def impossible_combinations(experiment: Experiment) -> Iterator[Problem]:
    """Each impossible pair of levels once, whatever the rank count."""
    seen = set()
    for ranks in experiment.ranks:
        for cell in cells_of(experiment, ranks, experiment.seeds[0]):
            for problem in _of_cell(cell):
                if problem not in seen:
                    seen.add(problem)
                    yield problem


def _of_cell(cell: Cell) -> Iterator[Problem]:
    optimizer, layout = cell.optimizer_level, cell.layout_level
    of_optimizer, of_layout = ("optimizers", cell.optimizer), ("layouts", cell.layout)
    has_moments = optimizer.kind != "sgd"
    replicated = layout.replicas > 1
    if cell.experiment.training.kernel == "fbgemm":
        if optimizer.kind in ("momentum_rowwise_adagrad", "density_scaled_rowwise_adagrad"):
            yield (*of_optimizer, "kind"), f"fbgemm has no {optimizer.kind}: {OTHER_KERNELS}"
        if has_moments and replicated and layout.sync_moments == "lagged":
            yield (*of_layout, "sync_moments"), f"fbgemm has no lagging moments: {OTHER_KERNELS}"
        if has_moments and cell.shards > 1 and _splits_columns(cell):
            yield (
                (*of_layout, _key_of_columns(cell)),
                "fbgemm takes a row's second moment over the columns that a shard holds, which makes it another optimizer than "
                f"that of whole rows: {OTHER_KERNELS}, or optimizer {cell.optimizer} to sgd",
            )
    if not has_moments and replicated and layout.sync_moments != "averaged":
        yield (
            (*of_layout, "sync_moments"),
            f"optimizer {cell.optimizer} has no moments to keep {layout.sync_moments}: leave the layout out of its layouts",
        )
    if optimizer.kind == "density_scaled_rowwise_adagrad":
        if replicated and layout.sync == "gradients":
            yield (
                (*of_layout, "sync"),
                f"twins that exchange gradients have one global mean, to which optimizer {cell.optimizer}'s c doesn't apply: "
                "leave the layout out of its layouts",
            )
        if "replicated" in layout.tables.values() or _splits_columns(cell):
            yield (
                (*of_layout, _key_of_columns(cell)),
                f"optimizer {cell.optimizer} counts hits where whole rows are: use table-wise, row-wise or planned sharding",
            )


def _splits_columns(cell: Cell) -> bool:
    return "column-wise" in (cell.layout_level.sharding, *cell.layout_level.tables.values())


def _key_of_columns(cell: Cell) -> str:
    return "sharding" if cell.layout_level.sharding == "column-wise" else "tables"
