"""Gradients of distinct rows."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RowGradients:
    """Summed gradients of distinct rows."""

    rows: torch.Tensor
    """[n] int64, ascending rows of the flat buffer."""
    gradients: torch.Tensor
    """[n, D] float32."""


def sum_by_row(rows: torch.Tensor, gradients: torch.Tensor) -> RowGradients:
    """Sum gradients [n, D] of equal rows [n]."""
    distinct, place = torch.unique(rows, return_inverse=True)
    return RowGradients(distinct, gradients.new_zeros(distinct.numel(), gradients.shape[1]).index_add_(0, place, gradients))
