"""Trains cells on real ranks, or on the virtual mesh, and brings the whole state back to the test."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from meshrec.data.batches import Batch
from meshrec.embeddings.kernels import ShardTables
from meshrec.embeddings.plan import TableShard
from meshrec.experiment import Cell
from meshrec.measure.clock import PhaseClock
from meshrec.measure.memory import analytic_memory
from meshrec.mesh.groups import MeshPool
from meshrec.mesh.launch import launch
from meshrec.train.accounting import analytic_traffic, component_bytes
from meshrec.train.ahead import Prefetch
from meshrec.train.trainer import Trainer

Arrays = list[list[np.ndarray]]


@dataclass
class State:
    """Model after training, as the ranks hold it."""

    tables: Arrays
    """[replica][table] rows × D."""
    moments: Arrays
    """[replica][table] rows; empty arrays for SGD."""
    dense: list[np.ndarray]
    """[rank] flat parameters."""
    losses: np.ndarray
    """[steps] global mean loss."""
    traffic: list[dict[str, Any]]
    """[rank] ledger entries."""
    states: dict[str, Arrays] = field(default_factory=dict)
    """Further optimizer state by name, [replica][table]."""
    analytic: list[dict[str, float]] = field(default_factory=list)
    """[rank] bytes a step by formula."""
    live: list[dict[str, Any]] = field(default_factory=list)
    """[rank] what the engine says it is."""
    memory: list[tuple[dict[str, int], dict[str, int]]] = field(default_factory=list)
    """[rank] bytes by component, from the live tensors and by formula."""


def train_on_ranks(ranks: int, cells: list[Cell], batches: list[list[Batch]], timeout: float = 120) -> list[State]:
    """Train each cell on its batches, all cells in one launch of so many processes: T, or 1 for virtual cells."""
    parts = launch(_train_cells, ranks, cells, batches, timeout=timeout, collective_timeout=30)
    return [_assemble(cell, [part[index] for part in parts]) for index, cell in enumerate(cells)]


def _train_cells(cells: list[Cell], batches: list[list[Batch]]) -> list[dict[str, Any]]:
    meshes = MeshPool(torch.device("cpu"), timedelta(seconds=30))
    return [_train_cell(cell, mine, meshes) for cell, mine in zip(cells, batches, strict=True)]


def _train_cell(cell: Cell, batches: list[Batch], meshes: MeshPool) -> dict[str, Any]:
    trainer, clock = Trainer(cell, meshes), PhaseClock(len(batches))
    stages = Prefetch(trainer, own_parts(trainer, batches))
    ahead = stages if cell.experiment.training.pipeline == "prefetch" else None
    losses = []
    for _ in batches:
        with clock.step():
            losses.append(float(trainer.compute(stages.take(clock), clock, ahead)))
    trainer.embeddings.finish()
    traffic, live = copy.deepcopy(trainer.ledger.entries), trainer.live()
    analytic = analytic_traffic(trainer, len(batches))
    memory = component_bytes(trainer), analytic_memory(trainer.shape(), 0, trainer.stored_over)
    if trainer.embeddings.storage:
        trainer.embeddings.storage.gather()
    return {
        "replica": trainer.mesh.replica,
        "held": list(_held(trainer)),
        "dense": trainer.dense.flat.detach().numpy().copy(),
        "losses": np.array(losses),
        "traffic": traffic,
        "analytic": analytic,
        "live": live,
        "memory": memory,
    }


def trainer_of(cell: Cell) -> Trainer:
    """A trainer on a rank of a launch."""
    return Trainer(cell, MeshPool(torch.device("cpu"), timedelta(seconds=30)))


def whole_state(trainer: Trainer) -> dict[str, Any]:
    """All that a rank holds, by name."""
    state = {"dense": trainer.dense.flat.detach().numpy().copy()}
    for value in trainer.dense.optimizer.state.values():
        state |= {f"dense {name}": tensor.numpy().copy() for name, tensor in value.items()}
    for index, tables in enumerate(trainer.embeddings.kernels()):
        everything = {"weights": tables.weights(), **tables.states()}
        state |= {f"{index} {name}": tensor.numpy().copy() for name, tensor in everything.items()}
    return state


def own_parts(trainer: Trainer, batches: list[Batch]) -> Iterator[Batch]:
    """This rank's part of global batches."""
    rank, size = trainer.mesh.rank, trainer.cell.global_batch // trainer.mesh.layout.ranks
    part = slice(rank * size, (rank + 1) * size)
    for batch in batches:
        yield Batch(batch.dense[part], batch.sparse[part], batch.labels[part])


def _held(trainer: Trainer) -> Iterator[tuple[int, TableShard, dict[str, np.ndarray]]]:
    """(replica, shard, its weights and states) of all this rank holds."""
    embeddings = trainer.embeddings
    replicated = embeddings.whole.twins if embeddings.whole else [None] * len(embeddings.twins)
    for local, (twin, whole) in enumerate(zip(embeddings.twins, replicated, strict=True)):
        for tables in [*twin.kernels, *(whole.kernels if whole else [])]:
            for shard, arrays in _by_shard(tables):
                yield trainer.mesh.replica + local, shard, arrays


def _by_shard(tables: ShardTables) -> Iterator[tuple[TableShard, dict[str, np.ndarray]]]:
    everything = {"weights": tables.weights(), **tables.states()}
    for shard, first in zip(tables.shards, tables.first_rows.tolist(), strict=True):
        yield shard, {name: tensor[first : first + shard.rows].numpy().copy() for name, tensor in everything.items()}


def _assemble(cell: Cell, parts: list[dict[str, Any]]) -> State:
    rows, dims = cell.experiment.dataset.rows_of_tables, cell.experiment.model.dims_of_tables
    replicas = cell.layout_level.replicas

    def empty(shapes: list[tuple[int, ...]]) -> Arrays:
        return [[np.full(shape, np.nan, np.float32) for shape in shapes] for _ in range(replicas)]

    found: dict[str, Arrays] = {"weights": empty(list(zip(rows, dims, strict=True)))}
    for part in parts:
        for replica, shard, arrays in part["held"]:
            here = slice(shard.start, shard.stop)
            for name, array in arrays.items():
                if name not in found:
                    found[name] = empty(
                        [
                            (count, *([dim] if name == "velocity" else array.shape[1:]))
                            for count, dim in zip(rows, dims, strict=True)
                        ]
                    )
                columns = slice(shard.left, shard.right) if name in ("weights", "velocity") else slice(None)
                whole = found[name][replica][shard.table]
                _write(whole, here, columns, array)
    return State(
        found.pop("weights"),
        found.pop("moments", empty([(count,) for count in rows])),
        [part["dense"] for part in parts],
        parts[0]["losses"],
        [part["traffic"] for part in parts],
        found,
        [part["analytic"] for part in parts],
        [part["live"] for part in parts],
        [part["memory"] for part in parts],
    )


def _write(whole: np.ndarray, rows: slice, columns: slice, array: np.ndarray) -> None:
    """Put a shard in its place; what several ranks hold must be the same on all of them, to the bit."""
    place = whole[rows] if whole.ndim == 1 else whole[rows, columns]
    known = ~np.isnan(place)
    np.testing.assert_array_equal(place[known], array[known])
    place[...] = array
