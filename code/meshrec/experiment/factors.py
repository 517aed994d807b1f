"""The factors of an experiment file: layouts and embedding optimizers."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from meshrec.experiment.base import Label, Strict

RankOrder = Literal["replicas-adjacent", "shards-adjacent"]
Sharding = Literal["table-wise", "row-wise"]


class Layout(Strict):
    """A mesh of (replicate = M) × (shard = N = T / M) ranks and how its M replicas stay together. M = 1 is 1D."""

    replicas: Annotated[int, Field(ge=1)] = 1
    """M: groups that each hold all tables."""
    rank_order: RankOrder = "replicas-adjacent"
    """Whether a shard's M twins (paper's default) or a group's N shards sit on neighbouring ranks."""
    sharding: Sharding = "table-wise"
    sync: Literal["weights", "gradients"] = "weights"
    """Twins average weights and second moments after the update (the paper's way), or exchange their gradients before it: the
    exact control, in which 2D computes what 1D computes."""
    sync_every: Annotated[int, Field(ge=1)] = 1
    """K: steps between two averages."""
    ranks: Annotated[list[int], Field(min_length=1)] | None = None
    """Rank counts at which this layout is run; all of the experiment's when left out."""

    @model_validator(mode="after")
    def _gradients_every_step(self) -> Self:
        if self.sync == "gradients" and self.sync_every != 1:
            raise ValueError(f"sync_every is {self.sync_every}, want 1: twins that exchange gradients do so in every step")
        return self

    def at(self, ranks: int) -> bool:
        """Whether the layout is run at this rank count."""
        return self.ranks is None or ranks in self.ranks


EpsPlacement = Literal["outside", "inside"]


class Sgd(Strict):
    """Plain stochastic gradient descent on the embedding rows."""

    kind: Literal["sgd"]
    lr: Annotated[float, Field(gt=0)]
    layouts: list[Label] | None = None
    """Layouts that this optimizer is crossed with; all when left out."""


class RowwiseAdagrad(Strict):
    """w ← w − lr·g/(√v + ε), v ← v + mean(g²) per row; ε inside the root is lr·g/√(v + ε)."""

    kind: Literal["rowwise_adagrad"]
    lr: Annotated[float, Field(gt=0)]
    eps: Annotated[float, Field(ge=0)] = 1e-8
    eps_placement: EpsPlacement = "outside"
    layouts: list[Label] | None = None


class MomentScaledRowwiseAdagrad(Strict):
    """Row-wise AdaGrad whose second moment is divided by c before the root (S1's optimizer, there with c = M)."""

    kind: Literal["moment_scaled_rowwise_adagrad"]
    lr: Annotated[float, Field(gt=0)]
    moment_scale: Annotated[float, Field(gt=0)]
    """c. In a 1D cell, the c of the 2D cell that it is compared with."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    eps_placement: EpsPlacement = "outside"
    layouts: list[Label] | None = None


Optimizer = Annotated[Sgd | RowwiseAdagrad | MomentScaledRowwiseAdagrad, Field(discriminator="kind")]
