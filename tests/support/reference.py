"""An independent float64 model of the training: one process, plain PyTorch, M groups that each hold all tables.

It shares nothing with the engine but the initial weights: the optimizers are written as their definitions say, without the
mapping to kernel parameters, and the interaction is left to autograd.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from meshrec.data.batches import Batch
from meshrec.experiment import Cell
from meshrec.train.initial import initial_model, initial_rows

Tables = list[torch.Tensor]


@dataclass
class Reference:
    """State after training, averaged over the groups."""

    tables: list[np.ndarray]
    moments: list[np.ndarray]
    dense: np.ndarray
    losses: np.ndarray


def simulate(
    cell: Cell, batches: list[Batch], groups: list[list[int]], sync_every: int = 1, optimizer: dict[str, Any] | None = None
) -> Reference:
    """Train with M groups of ranks.

    Args:
        cell: sizes, seed and optimizer.
        batches: global batches; rank r has the r-th of T equal parts.
        groups: ranks of each group.
        sync_every: K.
        optimizer: other optimizer settings than the cell's.
    """
    settings = optimizer or cell.optimizer_level.model_dump()
    rows, dim = cell.experiment.dataset.rows_of_tables, cell.experiment.model.embedding_dim
    start = initial_rows(cell.seed, rows, dim)
    tables = [[start(table, 0, count).double() for table, count in enumerate(rows)] for _ in groups]
    moments = [[torch.zeros(count, dtype=torch.float64) for count in rows] for _ in groups]
    model = initial_model(cell.seed, cell.experiment.model)
    dense = [parameter.detach().double().requires_grad_() for parameter in model.parameters()]
    bottoms = len(cell.experiment.model.bottom_mlp)
    losses = []
    for step, batch in enumerate(batches):
        losses.append(_step(settings, batch, groups, cell, tables, moments, dense, bottoms))
        if (step + 1) % sync_every == 0 or step == len(batches) - 1:
            _average(tables)
            _average(moments)
    return Reference(
        [table.numpy() for table in tables[0]],
        [moment.numpy() for moment in moments[0]],
        torch.cat([parameter.detach().flatten() for parameter in dense]).numpy(),
        np.array(losses),
    )


def _step(
    settings: dict[str, Any],
    batch: Batch,
    groups: list[list[int]],
    cell: Cell,
    tables: list[Tables],
    moments: list[Tables],
    dense: list[torch.Tensor],
    bottoms: int,
) -> float:
    part = cell.global_batch // cell.ranks
    dense_gradients = [torch.zeros_like(parameter) for parameter in dense]
    total = 0.0
    updates = []
    for group, ranks in enumerate(groups):
        samples = np.concatenate([np.arange(rank * part, (rank + 1) * part) for rank in ranks])
        leaves = [table.clone().requires_grad_() for table in tables[group]]
        ids = torch.from_numpy(batch.sparse[samples]).long()
        vectors = torch.stack([leaf[ids[:, table]] for table, leaf in enumerate(leaves)], dim=1)
        logits = _forward(torch.from_numpy(batch.dense[samples]).double(), vectors, dense, bottoms)
        labels = torch.from_numpy(batch.labels[samples]).double()
        loss = (torch.nn.functional.softplus(logits) - labels * logits).mean()
        gradients = torch.autograd.grad(loss, [*leaves, *dense])
        updates.append(gradients[: len(leaves)])
        share = len(ranks) / cell.ranks
        total += share * loss.item()
        for sum_, gradient in zip(dense_gradients, gradients[len(leaves) :], strict=True):
            sum_ += share * gradient
    for group, gradients in enumerate(updates):
        for table, gradient in enumerate(gradients):
            update(settings, tables[group][table], moments[group][table], gradient)
    with torch.no_grad():
        for parameter, gradient in zip(dense, dense_gradients, strict=True):
            parameter -= cell.experiment.training.dense_optimizer.lr * gradient
    return total


def update(settings: dict[str, Any], weights: torch.Tensor, moments: torch.Tensor, gradient: torch.Tensor) -> None:
    """One step of an embedding optimizer as its definition says, in place; rows without gradient stay as they are."""
    if settings["kind"] == "sgd":
        weights -= settings["lr"] * gradient
        return
    scale = settings.get("moment_scale", 1.0)
    moments += (gradient**2).mean(dim=1)
    if settings["eps_placement"] == "outside":
        denominator = (moments / scale).sqrt() + settings["eps"]
    else:
        denominator = (moments / scale + settings["eps"]).sqrt()
    step = settings["lr"] * gradient / denominator[:, None]
    touched = gradient.abs().sum(dim=1) > 0
    weights[touched] -= step[touched]


def _average(groups: list[Tables]) -> None:
    for table in range(len(groups[0])):
        mean = torch.stack([group[table] for group in groups]).sum(dim=0) / len(groups)
        for group in groups:
            group[table] = mean.clone()


def _forward(dense: torch.Tensor, vectors: torch.Tensor, parameters: list[torch.Tensor], bottoms: int) -> torch.Tensor:
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
