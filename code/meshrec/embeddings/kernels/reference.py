"""The kernel in plain PyTorch: what the others are compared with, on any device, for every optimizer."""

from typing import Any

import torch

from meshrec.embeddings.kernels.jagged import JaggedTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShard
from meshrec.embeddings.rows import RowGradients


class TorchTables(JaggedTables):
    """Shards in one tensor; the update is the optimizer's definition, line by line."""

    def __init__(self, shards: list[TableShard], optimizer: RowOptimizer, device: torch.device) -> None:
        super().__init__(shards, optimizer, device)
        self._weights = torch.empty(self.rows, self.dim, device=device)
        self._states = {
            name: torch.zeros(self.rows, *([] if width == 1 else [width or self.dim]), device=device)
            for name, width in optimizer.state_widths().items()
        }
        for name in ("moments", "lagged_moments"):
            if name in self._states:
                self._states[name].fill_(optimizer.initial_moment)

    def weights(self) -> torch.Tensor:
        return self._weights

    def states(self) -> dict[str, torch.Tensor]:
        return self._states

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        shards, bags = len(self.shards), ids.shape[1]
        pooled = self._weights.new_zeros(shards * bags, self.dim)
        pooled.index_add_(0, self._bags.bag_numbers(ids), self._weights[self._bags.flat_rows(ids)])
        return pooled.view(shards, bags, self.dim).transpose(0, 1).reshape(bags, -1)

    def update(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        self.apply(self.sum(ids, gradients))

    def apply(self, summed: RowGradients, mean_squares: torch.Tensor | None = None) -> None:
        rows, step = summed.rows, summed.gradients
        self.steps += 1
        if self.optimizer.has_moments:
            root = self._root(rows, step.square().mean(dim=1) if mean_squares is None else mean_squares)
            scale = self._density_scale(summed)
            step = self._velocity(rows, step) / (root / scale + self.optimizer.eps)[:, None]
        self._weights[rows] -= self.optimizer.lr * step

    def _root(self, rows: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
        """√v of rows, after v has grown by this step's mean squares; of lagging moments, √v of the last average."""
        moments = self._states["moments"][rows] + squares
        self._states["moments"][rows] = moments
        if self.optimizer.lagged:
            lagged = self._states["lagged_moments"][rows]
            moments = torch.where(lagged > self.optimizer.initial_moment, lagged, moments)
        return moments.sqrt()

    def _velocity(self, rows: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        if "velocity" not in self._states:
            return gradients
        velocity = self.optimizer.beta * self._states["velocity"][rows] + gradients
        self._states["velocity"][rows] = velocity
        return velocity

    def _density_scale(self, summed: RowGradients) -> torch.Tensor | float:
        """√c of rows from their past steps, to which this one is then added."""
        if "density" not in self._states:
            return 1.0
        assert summed.hits is not None
        assert summed.squares is not None
        past = self._states["density"][summed.rows]
        scale = density_scale(past, self.steps - 1, self.optimizer.replicas)
        pairs = summed.hits * (summed.hits - 1)
        of_pairs = summed.gradients.square().sum(dim=1) - summed.squares
        self._states["density"][summed.rows] = past + torch.stack([of_pairs, pairs, summed.squares, summed.hits], dim=1)
        return scale.sqrt()

    def live(self) -> dict[str, Any]:
        return {
            "kernel": f"{type(self).__module__}.{type(self).__name__}",
            "optimizer": f"EXACT_{self.optimizer.kind.upper()}",
            "lr": self.optimizer.lr,
            "eps": self.optimizer.eps,
            "weight_dtype": str(self._weights.dtype).removeprefix("torch."),
            "device": self._weights.device.type,
        }


def density_scale(past: torch.Tensor, steps: int, replicas: int) -> torch.Tensor:
    """c = (Kρ + M)/(Kρ + 1) of rows with statistics [n, 4] over so many steps; see `RowOptimizer` for the estimates."""
    of_pairs, pairs, squares, hits = past.unbind(dim=1)
    mean_square = of_pairs / pairs.clamp(min=1.0)
    hit_square = squares / hits.clamp(min=1.0)
    share = (mean_square / hit_square.clamp(min=torch.finfo(past.dtype).tiny)).clamp(0.0, 1.0)
    signal = share * replicas * hits / max(1, steps)
    return (signal + replicas) / (signal + 1)
