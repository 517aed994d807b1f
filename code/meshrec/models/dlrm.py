"""DLRM (Naumov et al., arXiv:1906.00091) without its embedding tables: bottom MLP, dot interaction, top MLP."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from meshrec.experiment.schema import DENSE_FEATURES, DlrmModel


class DotInteraction(torch.autograd.Function):
    """Dot products of all pairs of vectors. The backward gathers instead of scattering, which autograd's would do."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, pairs: torch.Tensor, pair_of: torch.Tensor) -> torch.Tensor:
        """Products of pairs.

        Args:
            ctx: autograd's.
            vectors: [b, V, D].
            pairs: [P] int64, i·V + j of each pair i > j.
            pair_of: [V·V] int64, the pair's number of each (i, j), and P on the diagonal.

        Returns:
            [b, P].
        """
        ctx.save_for_backward(vectors, pair_of)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """d(vᵢ·vⱼ) gives vⱼ to i and vᵢ to j: a symmetric matrix of gradients times the vectors."""
        vectors, pair_of = ctx.saved_tensors
        (gradient,) = gradients
        batch, count, _ = vectors.shape
        padded = torch.cat([gradient, gradient.new_zeros(batch, 1)], dim=1)
        symmetric = padded.index_select(1, pair_of).view(batch, count, count)
        return torch.bmm(symmetric, vectors), None, None


class Dlrm(nn.Module):
    """The dense part of DLRM: click logits from dense features and pooled embeddings."""

    pairs: torch.Tensor
    pair_of: torch.Tensor

    def __init__(self, settings: DlrmModel, features: int) -> None:
        """Build the layers for so many embedding tables; initial weights are PyTorch's and come from the global generator."""
        super().__init__()
        count = features + 1
        i, j = torch.tril_indices(count, count, offset=-1)
        self.register_buffer("pairs", i * count + j, persistent=False)
        pair_of = torch.full((count, count), i.numel())
        pair_of[i, j] = torch.arange(i.numel())
        pair_of[j, i] = torch.arange(i.numel())
        self.register_buffer("pair_of", pair_of.flatten(), persistent=False)
        self.bottom = mlp([DENSE_FEATURES, *settings.bottom_mlp], last_is_linear=False)
        self.top = mlp([i.numel() + settings.embedding_dim, *settings.top_mlp], last_is_linear=True)

    def forward(self, dense: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Click logits [b] from dense features [b, 13] and pooled embeddings [b, F, D]."""
        bottom = self.bottom(dense)
        vectors = torch.cat([bottom[:, None], embeddings], dim=1)
        products = DotInteraction.apply(vectors, self.pairs, self.pair_of)  # type: ignore[no-untyped-call]
        logits: torch.Tensor = self.top(torch.cat([bottom, products], dim=1))
        return logits.squeeze(1)


def mlp(widths: list[int], last_is_linear: bool) -> nn.Sequential:
    """Linear layers with ReLU after each, the last one perhaps without."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if last_is_linear else layers))
