"""meshrec's side of a comparison. All that benchmarks and peer tests know of its trainer is in this file."""

import copy
from datetime import timedelta

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from workload import TABLES, Workload

from meshrec.data.batches import Batch
from meshrec.measure.clock import PHASES, PhaseClock
from meshrec.mesh.groups import MeshPool
from meshrec.train.ahead import Prefetch
from meshrec.train.trainer import Trainer

COLLECTIVE_TIMEOUT = timedelta(seconds=60)


class MeshSide:
    """Trains a workload with meshrec on this rank, in the stages that the workload asks for."""

    name = "meshrec"

    def __init__(self, workload: Workload, device: torch.device) -> None:
        self.trainer = Trainer(workload.cell(), MeshPool(device, COLLECTIVE_TIMEOUT))
        self.trainer.embeddings.initialise(workload.initial_rows)
        self.initial_dense: nn.Module = copy.deepcopy(self.trainer.model)
        """The dense module before training: takes dense features [b, 13] and pooled embeddings [b, F·D], gives logits [b]."""
        self._clock = PhaseClock(1)

    def step(self, batch: Batch) -> torch.Tensor:
        """Train on this rank's part of a batch; the global mean loss, 0-d."""
        return self.trainer.step(self.trainer.feed(batch), self._clock)

    def train(self, batches: list[Batch]) -> None:
        """Train on this rank's parts of some batches, as meshrec's own loop does."""
        stages = Prefetch(self.trainer, iter(batches))
        ahead = stages if self.trainer.cell.experiment.training.pipeline == "prefetch" else None
        for _ in batches:
            self.trainer.compute(stages.take(self._clock), self._clock, ahead)

    def spoil(self, fault: str) -> None:
        """Break the training, to see that a comparison notices.

        Args:
            fault: `gradient_scale`: the tables' gradients are twice what they should be; `no_average`: replicas drift apart.
        """
        embeddings = self.trainer.embeddings
        if fault == "gradient_scale":
            exchange = embeddings.gradient_exchange
            embeddings.gradient_exchange = lambda *arguments: 2 * exchange(*arguments)
        elif fault == "no_average":
            embeddings.synchronise = embeddings.finish = lambda *_: None
        else:
            raise ValueError(f"fault is {fault!r}, want gradient_scale or no_average")

    def owners(self) -> list[int]:
        """For each table, the rank of a sharding group that holds it."""
        owner = {shard.table: shard.owner for shard in self.trainer.embeddings.plan.shards}
        return [owner[table] for table in range(TABLES)]

    def tables(self) -> dict[int, NDArray[np.float32]]:
        """Copies of the tables [rows, D] that this rank holds."""
        embeddings = self.trainer.embeddings
        embeddings.finish()
        return {shard.table: weights.cpu().numpy().copy() for shard, weights in embeddings.held()}

    def phase_seconds(self) -> dict[str, float]:
        """Seconds in each phase over all steps so far, in the order of a step."""
        return dict(zip(PHASES, self._clock.seconds[0].tolist(), strict=True))

    def forget_phases(self) -> None:
        """Start counting phases anew."""
        self._clock = PhaseClock(1)
