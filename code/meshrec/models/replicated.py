"""Data parallelism of the dense parameters over all ranks: one flat buffer, one all-reduce a step."""

import torch
from torch import nn

from meshrec.experiment.schema import DenseOptimizer
from meshrec.mesh.collectives import Collectives, Pending


class ReplicatedDense:
    """A module whose parameters and gradients are views of two flat buffers, updated by the mean gradient over all T ranks.

    The step's loss rides along in the gradient buffer's last element: every rank learns the global loss for free.
    """

    def __init__(self, module: nn.Module, settings: DenseOptimizer, collectives: Collectives) -> None:
        """Take over a module whose weights are the same on every rank."""
        self.module = module
        self._collectives = collectives
        self._ranks = collectives.mesh.size("world")
        parameters = list(module.parameters())
        count = sum(parameter.numel() for parameter in parameters)
        self._buffer = parameters[0].new_zeros(count + 1)
        self.flat = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        self.flat.grad = self._buffer[:count]
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self.flat.data[start:stop].view_as(parameter)
            parameter.grad = self._buffer[start:stop].view_as(parameter)
            start = stop
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD([self.flat], lr=settings.lr)
            if settings.kind == "sgd"
            else torch.optim.Adagrad([self.flat], lr=settings.lr)
        )

    def zero_gradients(self) -> None:
        """Before a backward: gradients stay the views that they are."""
        self._buffer.zero_()

    def start_all_reduce(self, loss: torch.Tensor) -> Pending:
        """Begin to sum gradients and this rank's mean loss over all ranks."""
        self._buffer[-1] = loss
        return self._collectives.start_all_reduce_sum("dense_all_reduce", self._buffer, "world")

    def finish_all_reduce(self, pending: Pending) -> torch.Tensor:
        """Turn the sums into means; returns the global mean loss, a 0-d tensor."""
        pending.wait()
        if self._ranks > 1:
            self._buffer /= self._ranks
        return self._buffer[-1].clone()

    def step(self) -> None:
        """Update the parameters."""
        self.optimizer.step()

    def gradient_bytes(self) -> int:
        """Bytes of the gradient buffer."""
        return self._buffer.nbytes

    def state_bytes(self) -> int:
        """Bytes of the dense optimizer's state."""
        return sum(
            value.nbytes
            for state in self.optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )
