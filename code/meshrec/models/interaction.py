"""The dot interaction: all pairs' products behind the first vector, as the top MLP wants them."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from meshrec.models.interaction_loops import Loops, compiled_loops

LINE = 16
"""Rows are padded to a multiple of so many numbers: the matrix products after it run up to 1.4 times as fast on whole lines."""


class DotInteraction(nn.Module):
    """[b, D] and [b, (V−1)·D] → [b, K]: the first vector, then vᵢ·vⱼ of all pairs i > j row by row, then zeros.

    K is D + V(V−1)/2, rounded up to whole lines. On a CPU by compiled loops over the samples, which write each number once and
    where it belongs, on one thread as ranks have it; elsewhere by PyTorch's operations.
    """

    pairs: torch.Tensor
    """[P] int64, i·V + j of each pair i > j."""
    pair_of: torch.Tensor
    """[V·V] int64, the pair's number of each (i, j), and P on the diagonal."""

    def __init__(self, vectors: int, dim: int) -> None:
        """For V vectors of D numbers, D a multiple of 4."""
        super().__init__()
        i, j = torch.tril_indices(vectors, vectors, offset=-1)
        self.dim = dim
        self.outputs = dim + i.numel()
        """Columns that mean something."""
        self.columns = -(-self.outputs // LINE) * LINE
        """K."""
        self.register_buffer("pairs", i * vectors + j, persistent=False)
        pair_of = torch.full((vectors, vectors), i.numel())
        pair_of[i, j] = pair_of[j, i] = torch.arange(i.numel())
        self.register_buffer("pair_of", pair_of.flatten(), persistent=False)

    def forward(self, first: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Products of pairs behind the first vector, padded."""
        if first.device.type == "cpu":
            result: torch.Tensor = ByLoops.apply(first, others, self.columns)  # type: ignore[no-untyped-call]
            return result
        return self.by_products(first, others)

    def by_products(self, first: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """The same on any device: a product of matrices for each sample, of which the lower triangle is taken."""
        vectors = torch.cat([first, others], dim=1).view(len(first), -1, self.dim)
        products = ByProducts.apply(vectors, self.pairs, self.pair_of)  # type: ignore[no-untyped-call]
        return torch.cat([first, products, first.new_zeros(len(first), self.columns - self.outputs)], dim=1)


class ByLoops(torch.autograd.Function):
    """The interaction by compiled loops. Arguments and result are `DotInteraction`'s."""

    @staticmethod
    def forward(ctx: Any, first: torch.Tensor, others: torch.Tensor, columns: int) -> torch.Tensor:
        """First vector, products, zeros, [b, columns]."""
        first, others = first.contiguous(), others.contiguous()
        ctx.save_for_backward(first, others)
        output = first.new_empty(len(first), columns)
        _loops(first, others).forward(first.detach().numpy(), others.detach().numpy(), output.numpy())
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Gradients to the first vector and to the others."""
        first, others = ctx.saved_tensors
        to_first, to_others = torch.empty_like(first), torch.empty_like(others)
        inputs = (gradient.contiguous().numpy(), first.detach().numpy(), others.detach().numpy())
        _loops(first, others).backward(*inputs, to_first.numpy(), to_others.numpy())
        return to_first, to_others, None


def _loops(first: torch.Tensor, others: torch.Tensor) -> Loops:
    dim = first.shape[1]
    return compiled_loops(1 + others.shape[1] // dim, dim)


class ByProducts(torch.autograd.Function):
    """Dot products of all pairs of vectors. The backward gathers instead of scattering, which autograd's would do."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, pairs: torch.Tensor, pair_of: torch.Tensor) -> torch.Tensor:
        """Products [b, P] of vectors [b, V, D]; `pairs` and `pair_of` are `DotInteraction`'s."""
        ctx.save_for_backward(vectors, pair_of)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """d(vᵢ·vⱼ) gives vⱼ to i and vᵢ to j: a symmetric matrix of gradients times the vectors."""
        vectors, pair_of = ctx.saved_tensors
        batch, count, _ = vectors.shape
        with_zero = torch.cat([gradient, gradient.new_zeros(batch, 1)], dim=1)
        symmetric = with_zero.index_select(1, pair_of).view(batch, count, count)
        return torch.bmm(symmetric, vectors), None, None
