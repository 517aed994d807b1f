"""Factors → cells → blocks: what is run, in which order, and a hash of everything that a run depends on."""

import hashlib
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from meshrec.experiment.schema import Dataset, Experiment, Layout, Optimizer


@dataclass(frozen=True)
class Cell:
    """One combination of factor levels at one rank count and seed: one run."""

    experiment: Experiment
    ranks: int
    seed: int
    layout: str
    optimizer: str
    scaling: str

    @property
    def name(self) -> str:
        """`layout.optimizer.scaling`: unique in its block, and the record's file name."""
        return f"{self.layout}.{self.optimizer}.{self.scaling}"

    @property
    def layout_level(self) -> Layout:
        """The layout's own settings."""
        return self.experiment.layouts[self.layout]

    @property
    def optimizer_level(self) -> Optimizer:
        """The embedding optimizer's own settings."""
        return self.experiment.optimizers[self.optimizer]

    @property
    def global_batch(self) -> int:
        """Samples in one step over all ranks."""
        return self.experiment.scaling[self.scaling].global_batch_at(self.ranks)

    @property
    def shards(self) -> int:
        """N: ranks over which a group's tables are sharded."""
        return self.ranks // self.layout_level.replicas

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the run's numbers depend on, resolved; labels, the question and the analysis are not part of it."""
        experiment = self.experiment
        return {
            "dataset": experiment.dataset.model_dump(mode="json"),
            "model": experiment.model.model_dump(mode="json"),
            "training": experiment.training.model_dump(mode="json", exclude=_WITHOUT_EFFECT),
            "ranks": self.ranks,
            "seed": self.seed,
            "global_batch": self.global_batch,
            "batch_period": batch_period(experiment),
            "layout": resolved_layout(self.layout_level),
            "optimizer": self.optimizer_level.model_dump(mode="json", exclude={"layouts"}),
        }

    @property
    def settings_hash(self) -> str:
        """Short hash of `settings`: a record whose hash differs belongs to another run and is not reused."""
        return hash_of(self.settings)

    @property
    def analysis_hash(self) -> str:
        """Short hash of the margins, comparisons and family that were in the file when the cell was run."""
        return hash_of(self.experiment.analysis.model_dump(mode="json"))

    @property
    def factors(self) -> dict[str, Any]:
        """Levels of all factors, flat, as records and tables have them; None where a factor has no effect."""
        optimizer = self.optimizer_level
        return {
            "dataset": self.experiment.dataset.name,
            "layout": self.layout,
            **{name: value for name, value in resolved_layout(self.layout_level).items() if name != "tables"},
            "optimizer": self.optimizer,
            "optimizer_kind": optimizer.kind,
            **{name: getattr(optimizer, name, None) for name in ("lr", "eps", "eps_placement", "moment_scale", "beta")},
            "scaling": self.scaling,
            "global_batch": self.global_batch,
            "execution": self.experiment.training.execution,
        }


_WITHOUT_EFFECT = {"checkpoint_every", "keep_checkpoints"}
"""Training settings on which no number depends."""
_REPLICATION = ("rank_order", "replica_storage", "sync")


def resolved_layout(layout: Layout) -> dict[str, Any]:
    """Settings that have an effect: with one replica there is nothing to order and nothing to keep together."""
    settings = layout.model_dump(mode="json", exclude={"ranks"})
    if layout.replicas == 1:
        settings |= {name: None for name in settings if name.startswith(_REPLICATION)}
    return settings


@dataclass(frozen=True)
class Block:
    """One launch: all cells of one seed at one rank count, in a seed-shuffled order."""

    experiment: Experiment
    ranks: int
    seed: int

    @property
    def name(self) -> str:
        """`ranks-seed`, the block's folder name."""
        return f"{self.ranks}-{self.seed}"

    @cached_property
    def cells(self) -> list[Cell]:
        """Cells in the order in which they run: shuffled, so that drift of the machine can't line up with a factor."""
        cells = list(cells_of(self.experiment, self.ranks, self.seed))
        random.Random(f"{self.experiment.name} {self.name}").shuffle(cells)
        return cells


def cells_of(experiment: Experiment, ranks: int, seed: int) -> Iterator[Cell]:
    """Cells of one block in the order of the file."""
    for layout_label, layout in experiment.layouts.items():
        for optimizer_label, optimizer in experiment.optimizers.items():
            if layout.at(ranks) and (optimizer.layouts is None or layout_label in optimizer.layouts):
                for scaling_label in experiment.scaling:
                    yield Cell(experiment, ranks, seed, layout_label, optimizer_label, scaling_label)


def blocks(experiment: Experiment) -> list[Block]:
    """All blocks of the experiment, seed by seed."""
    return [Block(experiment, ranks, seed) for seed in experiment.seeds for ranks in experiment.ranks]


def samples_per_run(experiment: Experiment, train_samples: int) -> int:
    """Training samples of every run: the largest number that all global batches of the experiment divide.

    Cells then consume exactly the same samples in the same order, whatever their batch and rank count.

    Raises:
        ValueError: not even one step fits into the training set.
    """
    period = batch_period(experiment)
    samples = train_samples // period * period
    if samples == 0:
        raise ValueError(
            f"{train_samples} training samples are fewer than {period}, the least common multiple of all global batches: "
            "take smaller batches or more data"
        )
    return samples


def batch_period(experiment: Experiment) -> int:
    """Least common multiple of all global batches of the experiment: every run consumes a multiple of it."""
    return math.lcm(*(scaling.global_batch_at(ranks) for scaling in experiment.scaling.values() for ranks in experiment.ranks))


def dataset_id(dataset: Dataset) -> str:
    """Folder name of a prepared data set: its kind and a hash of every setting that its columns depend on."""
    return f"{dataset.kind}-{hash_of(dataset.model_dump(mode='json'))}"


def hash_of(value: Any) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a JSON value in canonical form."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
