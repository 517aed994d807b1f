"""The kernel of compiled loops, for the CPU and for every optimizer: one thread, as a rank has it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meshrec.embeddings.kernels.compiled.loops import compiled_loops, compiled_touched
from meshrec.embeddings.kernels.compiled.parts import DENSITY, MOMENTUM, ROWWISE, SGD
from meshrec.embeddings.kernels.compiled.scratch import Scratch, array
from meshrec.embeddings.kernels.tables import ShardTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import PlanError, TableShard
from meshrec.embeddings.rows import RowGradients

_NUMBERS = {
    "sgd": SGD,
    "rowwise_adagrad": ROWWISE,
    "momentum_rowwise_adagrad": MOMENTUM,
    "density_scaled_rowwise_adagrad": DENSITY,
}
_STATES = {"moments": (0,), "lagged_moments": (0,), "velocity": (0, 0), "density": (0, 0)}
"""In the loops' order, with the shape of one that an optimizer doesn't have."""
_NONE = np.empty(0, np.float32)


class NumbaTables(ShardTables):
    """Shards in one tensor. Updates are fused: rows are found, gradients summed and rows changed shard by shard."""

    def __init__(self, shards: list[TableShard], optimizer: RowOptimizer, device: torch.device) -> None:
        if device.type != "cpu":
            raise PlanError(f"kernel numba is compiled for the CPU, not for {device.type}: use kernel fbgemm or torch")
        super().__init__(shards, optimizer, device)
        self._weights = torch.empty(self.rows, self.dim)
        self._states = {
            name: torch.zeros(self.rows, *([] if width == 1 else [width or self.dim]))
            for name, width in optimizer.state_widths().items()
        }
        for name in ("moments", "lagged_moments"):
            if name in self._states:
                self._states[name].fill_(optimizer.initial_moment)
        self._loops, self._touched = compiled_loops(self.dim), compiled_touched()
        self._scratch = Scratch(shards, self.dim, optimizer)
        self._shards = np.array(
            [
                (shard.start, shard.rows, first, shard.hots)
                for shard, first in zip(shards, self.first_rows.tolist(), strict=True)
            ],
            np.int64,
        )
        self._views: dict[str, tuple[int, NDArray[np.float32]]] = {}
        self._compile()

    def weights(self) -> torch.Tensor:
        return self._weights

    def states(self) -> dict[str, torch.Tensor]:
        return self._states

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        pooled = torch.empty(ids.shape[1], len(self.shards) * self.dim)
        self._loops.lookup(array(ids), self._shards, self._live()[0], array(pooled))
        return pooled

    def update(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        scratch = self._scratch
        scratch.fit(ids.shape[1])
        self._loops.update(
            array(ids), self._shards, array(gradients), self._live(), self._rule(), scratch.marks, scratch.rows, scratch.sums
        )
        self.steps += 1

    def sum(self, ids: torch.Tensor, gradients: torch.Tensor) -> RowGradients:
        rows = self.touched(ids)
        summed = torch.zeros(rows.numel(), self.dim)
        statistics = [torch.zeros(rows.numel()) for _ in range(2)] if self._scratch.statistics else []
        sums = (array(summed), *(map(array, statistics) if statistics else (_NONE, _NONE)))
        self._loops.sum(array(ids), self._shards, array(gradients), array(rows), self._scratch.marks[2], sums)
        return RowGradients(rows, summed, *statistics)

    def apply(self, summed: RowGradients, mean_squares: torch.Tensor | None = None) -> None:
        statistics = [array(part) for part in (summed.hits, summed.squares) if part is not None]
        sums = (array(summed.gradients), *(statistics if self._scratch.statistics else (_NONE, _NONE)))
        squares = _NONE if mean_squares is None else array(mean_squares)
        self._loops.apply(array(summed.rows), sums, squares, self._live(), self._rule())
        self.steps += 1

    def touched(self, ids: torch.Tensor) -> torch.Tensor:
        self._scratch.fit(ids.shape[1])
        count = self._touched(array(ids), self._shards, self._scratch.marks, self._scratch.rows)
        return torch.from_numpy(self._scratch.rows[:count].copy())

    def live(self) -> dict[str, Any]:
        return {
            "kernel": f"{type(self).__module__}.{type(self).__name__}",
            "optimizer": f"EXACT_{self.optimizer.kind.upper()}",
            "lr": self.optimizer.lr,
            "eps": self.optimizer.eps,
            "weight_dtype": str(self._weights.dtype).removeprefix("torch."),
            "device": self._weights.device.type,
        }

    def _compile(self) -> None:
        """Compile the loops, or load them, before a step is timed or a twin waits: use them on nothing."""
        ids, gradients = torch.empty(self.columns, 0, dtype=torch.int32), torch.empty(0, len(self.shards) * self.dim)
        self.lookup(ids)
        self.update(ids, gradients)
        self.apply(self.sum(ids, gradients))
        self.steps = 0

    def _live(self) -> tuple[NDArray[np.float32], ...]:
        """Weights and states as the loops take them."""
        states = (
            self._view(name, self._states[name]) if name in self._states else np.empty(none, np.float32)
            for name, none in _STATES.items()
        )
        return (self._view("weights", self._weights), *states)

    def _view(self, name: str, tensor: torch.Tensor) -> NDArray[np.float32]:
        """The tensor's numbers where they are now: their storage comes and goes where replicas keep a part of a shard each."""
        address, view = self._views.get(name, (0, _NONE))
        if address != tensor.data_ptr():
            view = array(tensor)
            self._views[name] = tensor.data_ptr(), view
        return view

    def _rule(self) -> tuple[Any, ...]:
        """The optimizer as the loops take it."""
        o = self.optimizer
        numbers = (np.float32(o.lr), np.float32(o.eps), np.float32(o.initial_moment), np.float32(o.beta))
        return (_NUMBERS[o.kind], o.lagged, *numbers, float(o.replicas), float(self.steps))
