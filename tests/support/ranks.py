"""Trains cells on real ranks and brings the whole state back to the test."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from meshrec.data.batches import Batch
from meshrec.experiment import Cell
from meshrec.measure.clock import PhaseClock
from meshrec.mesh.groups import MeshPool
from meshrec.mesh.launch import launch
from meshrec.train.trainer import Trainer


@dataclass
class State:
    """Model after training, as the ranks hold it."""

    tables: list[list[np.ndarray]]
    """[replica][table] rows × D."""
    moments: list[list[np.ndarray]]
    """[replica][table] rows; empty arrays for SGD."""
    dense: list[np.ndarray]
    """[rank] flat parameters."""
    losses: np.ndarray
    """[steps] global mean loss."""
    traffic: list[dict[str, Any]]
    """[rank] ledger entries."""


def train_on_ranks(ranks: int, cells: list[Cell], batches: list[list[Batch]], timeout: float = 120) -> list[State]:
    """Train each cell on its batches, all cells in one launch of T ranks."""
    parts = launch(_train_cells, ranks, cells, batches, timeout=timeout, collective_timeout=30)
    return [_assemble(cell, [part[index] for part in parts]) for index, cell in enumerate(cells)]


def _train_cells(cells: list[Cell], batches: list[list[Batch]]) -> list[dict[str, Any]]:
    meshes = MeshPool(torch.device("cpu"), timedelta(seconds=30))
    return [_train_cell(cell, mine, meshes) for cell, mine in zip(cells, batches, strict=True)]


def _train_cell(cell: Cell, batches: list[Batch], meshes: MeshPool) -> dict[str, Any]:
    trainer, clock = Trainer(cell, meshes), PhaseClock(len(batches))
    part = slice(*(np.array([dist.get_rank(), dist.get_rank() + 1]) * (cell.global_batch // cell.ranks)))
    losses = []
    for batch in batches:
        own = Batch(batch.dense[part], batch.sparse[part], batch.labels[part])
        with clock.step():
            losses.append(float(trainer.step(trainer.feed(own), clock)))
    trainer.embeddings.finish()
    return {
        "replica": trainer.mesh.replica,
        "shards": trainer.embeddings.shards,
        "weights": trainer.embeddings.tables.weights().numpy().copy(),
        "moments": trainer.embeddings.tables.moments().numpy().copy(),
        "dense": trainer.dense.flat.detach().numpy().copy(),
        "losses": np.array(losses),
        "traffic": trainer.ledger.entries,
        "live": trainer.live(),
    }


def _assemble(cell: Cell, parts: list[dict[str, Any]]) -> State:
    rows, dim = cell.experiment.dataset.rows_of_tables, cell.experiment.model.embedding_dim
    replicas = cell.layout_level.replicas
    tables = [[np.full((count, dim), np.nan, np.float32) for count in rows] for _ in range(replicas)]
    moments = [[np.full(count, np.nan, np.float32) for count in rows] for _ in range(replicas)]
    for part in parts:
        row = 0
        for shard in part["shards"]:
            here = slice(shard.start, shard.stop)
            tables[part["replica"]][shard.table][here] = part["weights"][row : row + shard.rows]
            if part["moments"].size:
                moments[part["replica"]][shard.table][here] = part["moments"][row : row + shard.rows]
            row += shard.rows
    return State(tables, moments, [part["dense"] for part in parts], parts[0]["losses"], [part["traffic"] for part in parts])
