"""Gradients of distinct rows."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RowGradients:
    """Gradients of distinct rows, summed over their hits."""

    rows: torch.Tensor
    """[n] int64, ascending rows of the flat buffer."""
    gradients: torch.Tensor
    """[n, D] float32."""
    hits: torch.Tensor | None = None
    """[n] float32, how often the batch asked for each row; only where the optimizer wants it."""
    squares: torch.Tensor | None = None
    """[n] float32, Σ‖gᵢ‖² over the hits; only where the optimizer wants it."""


def sum_by_row(rows: torch.Tensor, gradients: torch.Tensor, statistics: bool = False) -> RowGradients:
    """Sum gradients [n, D] of equal rows [n]; with their statistics on demand."""
    distinct, place = torch.unique(rows, return_inverse=True)
    summed = gradients.new_zeros(distinct.numel(), gradients.shape[1]).index_add_(0, place, gradients)
    if not statistics:
        return RowGradients(distinct, summed)
    zeros = gradients.new_zeros(distinct.numel())
    hits = zeros.index_add(0, place, torch.ones_like(place, dtype=gradients.dtype))
    return RowGradients(distinct, summed, hits, zeros.index_add(0, place, gradients.square().sum(dim=1)))
