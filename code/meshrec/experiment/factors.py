"""The factors of an experiment file: layouts and embedding optimizers."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from meshrec.experiment.base import CATEGORICAL_FEATURES, Label, Strict

RankOrder = Literal["replicas-adjacent", "shards-adjacent"]
Sharding = Literal["table-wise", "row-wise", "column-wise", "planned"]
TableSharding = Literal["table-wise", "row-wise", "column-wise", "replicated"]


class Layout(Strict):
    """A mesh of (replicate = M) × (shard = N = T / M) ranks and how its M replicas stay together. M = 1 is 1D."""

    replicas: Annotated[int, Field(ge=1)] = 1
    """M: groups that each hold all tables."""
    rank_order: RankOrder = "replicas-adjacent"
    """Whether a shard's M twins (paper's default) or a group's N shards sit on neighbouring ranks."""
    sharding: Sharding = "table-wise"
    """How a group's ranks share the tables; `planned` balances lookups, bytes and memory by measured access frequencies."""
    tables: dict[Annotated[int, Field(ge=0, lt=CATEGORICAL_FEATURES)], TableSharding] = {}
    """Tables that are sharded otherwise; `replicated` ones are held whole by every rank of a group."""
    memory_limit: Annotated[int, Field(ge=1)] | None = None
    """Bytes of rows and their optimizer state that a rank may hold; none when left out."""
    sync: Literal["weights", "gradients"] = "weights"
    """Twins average weights and second moments after the update (the paper's way), or exchange their gradients before it: the
    exact control, in which 2D computes what 1D computes."""
    sync_every: Annotated[int, Field(ge=1)] = 1
    """K: steps between two averages."""
    sync_moments: Literal["averaged", "local", "lagged"] = "averaged"
    """Second moments are averaged with the weights, stay each twin's own, or are averaged and used one average later."""
    sync_rows: Literal["touched", "whole", "auto"] = "touched"
    """Which rows travel in an average: those that a twin touched since the last one, whole shards, or whichever is cheaper by
    the measured share of touched rows. The result is the same."""
    sync_overlap: bool = False
    """Whether the average runs beside the next step's input exchange and bottom MLP, until the next lookup waits for it."""
    replica_storage: Literal["replicated", "sharded"] = "replicated"
    """Whether each twin keeps its shard whole, or 1/M of it between uses."""
    ranks: Annotated[list[int], Field(min_length=1)] | None = None
    """Rank counts at which this layout is run; all of the experiment's when left out."""

    @model_validator(mode="after")
    def _synchronisation_fits(self) -> Self:
        if self.sync == "gradients":
            averages = {"sync_every": 1, "sync_moments": "averaged", "sync_rows": "touched", "sync_overlap": False}
            for key, only in averages.items():
                if getattr(self, key) != only:
                    raise ValueError(
                        f"{key} is {getattr(self, key)}, want {only}: twins that exchange gradients do so in every step and "
                        "average nothing"
                    )
        if self.replica_storage == "sharded":
            self._check_sharded_storage()
        return self

    def _check_sharded_storage(self) -> None:
        wanted = {"sync": "weights", "sync_every": 1, "sync_moments": "averaged", "sync_rows": "whole", "sync_overlap": False}
        for key, only in wanted.items():
            if getattr(self, key) != only:
                raise ValueError(
                    f"{key} is {getattr(self, key)}, want {only}: twins that keep 1/M of a shard each have only one state of it"
                )

    def at(self, ranks: int) -> bool:
        """Whether the layout is run at this rank count."""
        return self.ranks is None or ranks in self.ranks


EpsPlacement = Literal["outside", "inside"]


class EmbeddingOptimizer(Strict):
    """What all embedding optimizers have."""

    lr: Annotated[float, Field(gt=0)]
    layouts: list[Label] | None = None
    """Layouts that this optimizer is crossed with; all when left out."""

    @model_validator(mode="before")
    @classmethod
    def _no_weight_decay(cls, given: Any) -> Any:
        if isinstance(given, dict) and "weight_decay" in given:
            raise ValueError(
                "weight_decay is not supported: of a sparse update it would decay touched rows only, and fbgemm's CPU kernel "
                "accepts and ignores it; remove it"
            )
        return given


class Sgd(EmbeddingOptimizer):
    """Plain stochastic gradient descent on the embedding rows."""

    kind: Literal["sgd"]


class RowwiseAdagrad(EmbeddingOptimizer):
    """w ← w − lr·g/(√v + ε), v ← v + mean(g²) per row; ε inside the root is lr·g/√(v + ε)."""

    kind: Literal["rowwise_adagrad"]
    eps: Annotated[float, Field(ge=0)] = 1e-8
    eps_placement: EpsPlacement = "outside"


class MomentScaledRowwiseAdagrad(EmbeddingOptimizer):
    """Row-wise AdaGrad whose second moment is divided by c before the root (S1's optimizer, there with c = M)."""

    kind: Literal["moment_scaled_rowwise_adagrad"]
    moment_scale: Annotated[float, Field(gt=0)]
    """c. In a 1D cell, the c of the 2D cell that it is compared with."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    eps_placement: EpsPlacement = "outside"


class MomentumRowwiseAdagrad(EmbeddingOptimizer):
    """Row-wise AdaGrad of a velocity: u ← β·u + g, w ← w − lr·u/(√v + ε), v ← v + mean(g²), of rows that the batch hits.

    The other reading of S1's "momentum": a first moment under the per-row rate.
    """

    kind: Literal["momentum_rowwise_adagrad"]
    beta: Annotated[float, Field(ge=0, lt=1)]
    eps: Annotated[float, Field(ge=0)] = 1e-8


class DensityScaledRowwiseAdagrad(EmbeddingOptimizer):
    """Moment-scaled row-wise AdaGrad with a c of its own for every row, c = (Kρ + M)/(Kρ + 1): what averaging over M groups
    adds to the row's second moment, by its measured hits K in a global batch and share ρ of the mean in a hit's gradient."""

    kind: Literal["density_scaled_rowwise_adagrad"]
    replicas: Annotated[int, Field(ge=1)]
    """M. In a 1D cell, the M of the 2D cell that it is compared with."""
    eps: Annotated[float, Field(ge=0)] = 1e-8


Optimizer = Annotated[
    Sgd | RowwiseAdagrad | MomentScaledRowwiseAdagrad | MomentumRowwiseAdagrad | DensityScaledRowwiseAdagrad,
    Field(discriminator="kind"),
]
