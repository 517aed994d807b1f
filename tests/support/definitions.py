"""The embedding optimizers in float64, as their definitions say: no mapping to kernel parameters, no kernel."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Table:
    """One group's copy of a table."""

    weights: torch.Tensor
    moments: torch.Tensor = field(init=False)
    lagged: torch.Tensor = field(init=False)
    velocity: torch.Tensor = field(init=False)
    density: torch.Tensor = field(init=False)
    """[rows, 4] sums of ‖g‖² − Σ‖gᵢ‖², k(k − 1), Σ‖gᵢ‖², k."""
    steps: int = 0

    def __post_init__(self) -> None:
        rows = len(self.weights)
        self.moments = torch.zeros(rows, dtype=torch.float64)
        self.lagged = torch.zeros(rows, dtype=torch.float64)
        self.velocity = torch.zeros_like(self.weights)
        self.density = torch.zeros(rows, 4, dtype=torch.float64)


@dataclass(frozen=True)
class Hits:
    """What a batch asks of a table: rows [n], repeats included, and the gradient [n, D] of each."""

    rows: torch.Tensor
    gradients: torch.Tensor


def step(settings: dict[str, Any], table: Table, hits: Hits, lag: bool = False) -> None:
    """One step of an optimizer on a table, in place."""
    summed = torch.zeros_like(table.weights).index_add_(0, hits.rows, hits.gradients)
    touched = torch.unique(hits.rows)
    table.steps += 1
    if settings["kind"] == "sgd":
        table.weights -= settings["lr"] * summed
        return
    table.moments += (summed**2).mean(dim=1)
    moments = torch.where(table.lagged > 0, table.lagged, table.moments) if lag else table.moments
    direction, scale = summed, torch.as_tensor(settings.get("moment_scale", 1.0))
    if settings["kind"] == "momentum_rowwise_adagrad":
        table.velocity[touched] = settings["beta"] * table.velocity[touched] + summed[touched]
        direction = table.velocity
    if settings["kind"] == "density_scaled_rowwise_adagrad":
        scale = density_scale(table, settings["replicas"])
        _count(table, hits, summed)
    if settings.get("eps_placement", "outside") == "outside":
        root = (moments / scale).sqrt() + settings["eps"]
    else:
        root = (moments / scale + settings["eps"]).sqrt()
    table.weights[touched] -= (settings["lr"] * direction / root[:, None])[touched]


def density_scale(table: Table, replicas: int) -> torch.Tensor:
    """c = (Kρ + M)/(Kρ + 1) of every row, from the steps before this one; row by row, without clever vectors."""
    scales = []
    for of_pairs, pairs, squares, hits in table.density.tolist():
        share = (of_pairs / pairs) / (squares / hits) if pairs and squares else 0.0
        signal = min(max(share, 0.0), 1.0) * replicas * hits / max(1, table.steps - 1)
        scales.append((signal + replicas) / (signal + 1))
    return torch.tensor(scales, dtype=torch.float64)


def _count(table: Table, hits: Hits, summed: torch.Tensor) -> None:
    count = torch.zeros(len(table.weights), dtype=torch.float64).index_add_(
        0, hits.rows, torch.ones(len(hits.rows), dtype=torch.float64)
    )
    squares = torch.zeros(len(table.weights), dtype=torch.float64).index_add_(0, hits.rows, (hits.gradients**2).sum(dim=1))
    table.density += torch.stack([(summed**2).sum(dim=1) - squares, count * (count - 1), squares, count], dim=1)


def update(settings: dict[str, Any], weights: torch.Tensor, moments: torch.Tensor, gradient: torch.Tensor) -> None:
    """One step by summed gradients [rows, D], in place on weights and moments; rows without gradient stay as they are."""
    table = Table(weights)
    table.moments = moments
    rows = (gradient.abs().sum(dim=1) > 0).nonzero()[:, 0]
    step(settings, table, Hits(rows, gradient[rows]))
