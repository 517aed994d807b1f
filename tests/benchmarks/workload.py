"""What both sides train: model, data, initial weights. Both get the same arrays, made from the seed alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meshrec.data.batches import Batch
from meshrec.experiment import Cell, Experiment

TABLES = 26
DENSE = 13
OPTIMIZERS = ("sgd", "rowwise_adagrad")


@dataclass(frozen=True)
class Workload:
    """The DLRM of the project's timing experiments, trained from synthetic batches with head-heavy ids."""

    ranks: int
    replicas: int = 1
    """M; 1 is 1D."""
    optimizer: str = "rowwise_adagrad"
    lr: float = 0.02
    eps: float = 1e-8
    kernel: str = "fbgemm"
    """meshrec's `training.kernel`."""
    pipeline: str = "sequential"
    """meshrec's `training.pipeline`."""
    rows: int = 100_000
    dim: int = 16
    bottom: tuple[int, ...] = (64, 16)
    top: tuple[int, ...] = (256, 64, 1)
    dense_lr: float = 0.02
    """Of plain SGD, which doesn't amplify rounding."""
    batch: int = 2048
    """Samples in a step over all ranks."""
    zipf: float = 1.05
    seed: int = 0

    def cell(self) -> Cell:
        """meshrec's own description of the run, through its schema."""
        optimizer: dict[str, Any] = {"kind": self.optimizer, "lr": self.lr}
        if self.optimizer != "sgd":
            optimizer["eps"] = self.eps
        experiment = Experiment.model_validate(
            {
                "name": "benchmark",
                "title": "benchmark",
                "question": "How fast is a step beside TorchRec's?",
                "dataset": {"kind": "synthetic", "train_samples": self.batch, "eval_samples": 1, "table_rows": self.rows},
                "model": {"embedding_dim": self.dim, "bottom_mlp": list(self.bottom), "top_mlp": list(self.top)},
                "training": {
                    "dense_optimizer": {"kind": "sgd", "lr": self.dense_lr},
                    "kernel": self.kernel,
                    "pipeline": self.pipeline,
                },
                "ranks": [self.ranks],
                "seeds": [self.seed],
                "scaling": {"strong": {"global_batch": self.batch}},
                "layouts": {"layout": {"replicas": self.replicas}},
                "optimizers": {"optimizer": optimizer},
                "analysis": {"factorial": {"layouts": ["layout"] * 2, "optimizers": ["optimizer"] * 2}},
            }
        )
        return Cell(experiment, self.ranks, self.seed, "layout", "optimizer", "strong")

    def rank_batches(self, steps: int, rank: int) -> list[Batch]:
        """A rank's slice of so many global batches; the global batches don't depend on the number of ranks."""
        part = self.batch // self.ranks
        mine = slice(rank * part, (rank + 1) * part)
        return [Batch(*(np.ascontiguousarray(array[mine]) for array in arrays)) for arrays in self._global_batches(steps)]

    def _global_batches(self, steps: int) -> list[tuple[NDArray[Any], ...]]:
        rng = np.random.default_rng(self.seed)
        cumulative = np.cumsum(np.arange(1, self.rows + 1, dtype=np.float64) ** -self.zipf)
        row_of_rank = np.stack([rng.permutation(self.rows) for _ in range(TABLES)])  # popular rows lie anywhere in a table
        batches = []
        for _ in range(steps):
            popularity = np.searchsorted(cumulative, rng.random((self.batch, TABLES)) * cumulative[-1])
            dense = rng.standard_normal((self.batch, DENSE), dtype=np.float32)
            clicks = rng.random(self.batch) < 1 / (1 + np.exp(-dense[:, 0] - (popularity[:, 0] < 20)))
            ids = row_of_rank[np.arange(TABLES), popularity]
            batches.append((dense, ids.astype(np.int32), clicks.astype(np.float32)))
        return batches

    def initial_rows(self, table: int, start: int, stop: int) -> torch.Tensor:
        """Initial weights [stop − start, D] float32 of rows of a table, uniform in ±1/√rows."""
        bound = 1 / math.sqrt(self.rows)
        generator = torch.Generator().manual_seed(self.seed * TABLES + table)
        return torch.empty(self.rows, self.dim).uniform_(-bound, bound, generator=generator)[start:stop]
