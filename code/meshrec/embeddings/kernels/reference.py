"""The kernel in plain PyTorch: what the others are compared with, on any device."""

from typing import Any

import torch

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.kernels.tables import ShardTables
from meshrec.embeddings.plan import TableShard
from meshrec.embeddings.rows import sum_by_row


class TorchTables(ShardTables):
    """Shards in one tensor; the update is the optimizer's definition, line by line."""

    def __init__(self, shards: list[TableShard], dim: int, optimizer: KernelOptimizer, device: torch.device) -> None:
        super().__init__(shards, dim, optimizer, device)
        rows = sum(shard.rows for shard in shards)
        self._optimizer = optimizer
        self._weights = torch.empty(rows, dim, device=device)
        self._moments = torch.full((rows if self.has_moments else 0,), optimizer.initial_moment, device=device)
        # autograd calls a backward only for an input that wants a gradient, and the weights themselves must not
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def weights(self) -> torch.Tensor:
        return self._weights

    def moments(self) -> torch.Tensor:
        return self._moments

    def lookup(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = _Lookup.apply(self._anchor, self, indices, offsets)  # type: ignore[no-untyped-call]
        return pooled

    def apply(self, rows: torch.Tensor, gradients: torch.Tensor) -> None:
        step = self._optimizer.lr * gradients
        if self.has_moments:
            moments = self._moments[rows] + gradients.square().mean(dim=1)
            self._moments[rows] = moments
            step /= (moments.sqrt() + self._optimizer.eps)[:, None]
        self._weights[rows] -= step

    def live(self) -> dict[str, Any]:
        return {
            "kernel": f"{type(self).__module__}.{type(self).__name__}",
            "optimizer": f"EXACT_{self._optimizer.kind.upper()}",
            "lr": self._optimizer.lr,
            "eps": self._optimizer.eps,
            "weight_dtype": str(self._weights.dtype).removeprefix("torch."),
            "device": self._weights.device.type,
        }


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, tables: TorchTables, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        shards, bags = len(tables.shards), (offsets.numel() - 1) // len(tables.shards)
        bag = torch.repeat_interleave(torch.arange(shards * bags, device=offsets.device), offsets.diff())
        rows = indices + tables.first_rows[bag // bags]
        ctx.tables, ctx.shape = tables, (shards, bags)
        ctx.save_for_backward(rows, bag)
        pooled = tables.weights().new_zeros(shards * bags, tables.dim).index_add_(0, bag, tables.weights()[rows])
        return pooled.view(shards, bags, tables.dim).transpose(0, 1).reshape(bags, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, None, None, None]:
        rows, bag = ctx.saved_tensors
        shards, bags = ctx.shape
        by_bag = gradients[0].view(bags, shards, ctx.tables.dim).transpose(0, 1).reshape(shards * bags, -1)
        summed = sum_by_row(rows, by_bag[bag])
        ctx.tables.apply(summed.rows, summed.gradients)
        return None, None, None, None
