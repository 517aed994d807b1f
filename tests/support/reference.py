"""An independent float64 model of the training: one process, plain PyTorch, M groups that each hold all tables.

It shares nothing with the engine but the initial weights and the ids of hots: the optimizers are written as their definitions
say, and the interaction is left to autograd.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from meshrec.data.batches import Batch
from meshrec.data.hots import expand
from meshrec.experiment import Cell
from meshrec.train.initial import initial_model, initial_rows
from support.definitions import Hits, Table, step


@dataclass
class Reference:
    """State after training, averaged over the groups."""

    tables: list[np.ndarray]
    moments: list[np.ndarray]
    dense: np.ndarray
    losses: np.ndarray
    groups: list[list[Table]]
    """[group][table] all there is."""


@dataclass
class _Run:
    cell: Cell
    groups: list[list[int]]
    tables: list[list[Table]]
    dense: list[torch.Tensor]
    settings: dict[str, Any]
    moments: str
    """averaged, local or lagged."""


def simulate(
    cell: Cell, batches: list[Batch], groups: list[list[int]], sync_every: int = 1, optimizer: dict[str, Any] | None = None
) -> Reference:
    """Train with M groups of ranks, which average weights and, by the cell's layout, moments.

    Args:
        cell: sizes, seed and optimizer; its layout says what becomes of the moments.
        batches: global batches; rank r has the r-th of T equal parts.
        groups: ranks of each group.
        sync_every: K.
        optimizer: other optimizer settings than the cell's.
    """
    torch.set_num_threads(1)  # tensors are tiny here
    rows, dims = cell.experiment.dataset.rows_of_tables, cell.experiment.model.dims_of_tables
    start = initial_rows(cell.seed, rows, dims)
    tables = [[Table(start(table, 0, count).double()) for table, count in enumerate(rows)] for _ in groups]
    model = initial_model(cell.seed, cell.experiment.model)
    dense = [parameter.detach().double().requires_grad_() for parameter in model.parameters()]
    settings = optimizer or cell.optimizer_level.model_dump()
    run = _Run(cell, groups, tables, dense, settings, cell.layout_level.sync_moments if len(groups) > 1 else "averaged")
    losses = []
    for index, batch in enumerate(batches):
        losses.append(_step(run, batch))
        if (index + 1) % sync_every == 0 or index == len(batches) - 1:
            _average(run)
    return Reference(
        [table.weights.numpy() for table in tables[0]],
        [table.moments.numpy() for table in tables[0]],
        torch.cat([parameter.detach().flatten() for parameter in dense]).numpy(),
        np.array(losses),
        tables,
    )


def _step(run: _Run, batch: Batch) -> float:
    cell, part, total = run.cell, run.cell.global_batch // run.cell.ranks, 0.0
    dense_gradients = [torch.zeros_like(parameter) for parameter in run.dense]
    updates = []
    for tables, ranks in zip(run.tables, run.groups, strict=True):
        samples = np.concatenate([np.arange(rank * part, (rank + 1) * part) for rank in ranks])
        ids = _ids(cell, batch.sparse[samples])
        vectors = torch.stack(
            [table.weights[of_table].sum(dim=1) for table, of_table in zip(tables, ids, strict=True)], dim=1
        ).requires_grad_()
        logits = _forward(cell, torch.from_numpy(batch.dense[samples]).double(), vectors, run.dense)
        labels = torch.from_numpy(batch.labels[samples]).double()
        loss = (torch.nn.functional.softplus(logits) - labels * logits).mean()
        of_vectors, *gradients = torch.autograd.grad(loss, [vectors, *run.dense])
        updates.append([_hits(of_table, of_vectors[:, table]) for table, of_table in enumerate(ids)])
        share = len(ranks) / cell.ranks
        total += share * loss.item()
        for sum_, gradient in zip(dense_gradients, gradients, strict=True):
            sum_ += share * gradient
    for tables, hits in zip(run.tables, updates, strict=True):
        for table, of_table in zip(tables, hits, strict=True):
            step(run.settings, table, of_table, run.moments == "lagged")
    with torch.no_grad():
        for parameter, gradient in zip(run.dense, dense_gradients, strict=True):
            parameter -= cell.experiment.training.dense_optimizer.lr * gradient
    return total


def _ids(cell: Cell, sparse: np.ndarray) -> list[torch.Tensor]:
    """[table] ids [b, hots] int64."""
    hots = cell.experiment.model.hots_of_tables
    expanded = torch.from_numpy(expand(sparse, hots, cell.experiment.dataset.rows_of_tables)).long()
    return list(expanded.split(hots, dim=1))


def _hits(ids: torch.Tensor, gradients: torch.Tensor) -> Hits:
    """Each of a sample's ids [b, hots] gets the gradient [b, D] of their sum."""
    return Hits(ids.flatten(), gradients.repeat_interleave(ids.shape[1], dim=0))


def _average(run: _Run) -> None:
    states = ["weights"] if run.moments == "local" else ["weights", "moments", "velocity", "density"]
    for copies in zip(*run.tables, strict=True):
        for state in states:
            mean = torch.stack([getattr(table, state) for table in copies]).sum(dim=0) / len(copies)
            for table in copies:
                setattr(table, state, mean.clone())
        for table in copies:
            table.lagged = table.moments.clone()


def _forward(cell: Cell, dense: torch.Tensor, vectors: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    bottoms = len(cell.experiment.model.bottom_mlp)
    x = dense
    for layer in range(bottoms):
        x = torch.relu(x @ parameters[2 * layer].T + parameters[2 * layer + 1])
    every = torch.cat([x[:, None], vectors], dim=1)
    i, j = torch.tril_indices(every.shape[1], every.shape[1], offset=-1)
    y = torch.cat([x, (every @ every.mT)[:, i, j]], dim=1)
    layers = list(range(bottoms, len(parameters) // 2))
    for layer in layers:
        y = y @ parameters[2 * layer].T + parameters[2 * layer + 1]
        if layer != layers[-1]:
            y = torch.relu(y)
    return y.squeeze(1)


def largest_difference(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Largest absolute difference over all arrays; NaN if anything is missing."""
    return max(float(np.abs(a.astype(np.float64) - b).max()) for a, b in zip(found, wanted, strict=True)) if found else math.nan


def largest_relative_difference(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Largest difference relative to the wanted value, over all arrays of positive numbers; zeros must be met exactly."""
    return max(
        float((np.abs(a.astype(np.float64) - b) / np.maximum(b, 1e-30)).max()) for a, b in zip(found, wanted, strict=True)
    )
