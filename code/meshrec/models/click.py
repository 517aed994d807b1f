"""What all click models have in common: a bottom MLP that can run before the embeddings are there, and the rest over it."""

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import nn

from meshrec.experiment.base import DENSE_FEATURES


class ClickModel(nn.Module, ABC):
    """The dense part of a recommender: click logits from dense features and pooled embeddings."""

    bottom: nn.Sequential
    """[b, 13] float32 → [b, D], the numbers' share. It needs no embeddings, so their exchange can go on beside it."""

    def __init__(self, bottom_mlp: list[int]) -> None:
        """Build the bottom MLP."""
        super().__init__()
        self.bottom = mlp([DENSE_FEATURES, *bottom_mlp], last_is_linear=False)

    @abstractmethod
    def over(self, bottom: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Click logits [b] from `bottom`'s output [b, D] and pooled embeddings [b, W], table by table, W = Σ dims of tables."""

    def forward(self, dense: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Click logits [b] from dense features [b, 13] and pooled embeddings [b, W], table by table, W = Σ dims of tables."""
        return self.over(self.bottom(dense), embeddings)


def mlp(widths: list[int], last_is_linear: bool) -> nn.Sequential:
    """Linear layers with ReLU after each, the last one perhaps without. ReLU overwrites its input, which nothing else needs."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*(layers[:-1] if last_is_linear else layers))
