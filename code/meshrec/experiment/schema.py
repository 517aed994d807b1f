"""The typed schema of an experiment file: datasets, model, layouts, optimizers and the analysis.

Every field that a run depends on is here, so that a resolved cell says all there is to know about it. Unknown keys are errors.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

CATEGORICAL_FEATURES = 26
DENSE_FEATURES = 13

Label = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=32)]
"""A short name used in file names, tables and figures."""


class Strict(BaseModel):
    """Immutable and closed: a key that is not declared is an error, not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# --- data -------------------------------------------------------------------------------------------------------------


class TableRows(Strict):
    """Mixin: rows of the embedding tables, one number for all 26 or one for each."""

    table_rows: Annotated[int, Field(ge=2, le=2**31 - 1)] | list[Annotated[int, Field(ge=2, le=2**31 - 1)]]

    @field_validator("table_rows")
    @classmethod
    def _one_or_all(cls, rows: int | list[int]) -> int | list[int]:
        if isinstance(rows, list) and len(rows) != CATEGORICAL_FEATURES:
            raise ValueError(f"found {len(rows)} numbers, want one number or {CATEGORICAL_FEATURES}, one for each table")
        return rows

    @property
    def rows_of_tables(self) -> list[int]:
        """Rows of each of the 26 tables."""
        return list(self.table_rows) if isinstance(self.table_rows, list) else [self.table_rows] * CATEGORICAL_FEATURES


class SyntheticDataset(TableRows):
    """Criteo-like rows with a planted click model, whose best reachable metrics are known."""

    kind: Literal["synthetic"]
    train_samples: Annotated[int, Field(ge=1)]
    eval_samples: Annotated[int, Field(ge=1)]
    zipf_exponent: Annotated[float, Field(gt=0, le=4)] = 1.05
    click_rate: Annotated[float, Field(gt=0, lt=1)] = 0.25
    strength: Annotated[float, Field(ge=0)] = 1.0
    """Standard deviation of the planted logit: 0 is unlearnable noise."""
    missing_rate: Annotated[float, Field(ge=0, lt=1)] = 0.1
    seed: int = 0
    """Seed of the data, apart from the seeds of the runs: every run of an experiment sees the same rows."""

    @property
    def name(self) -> str:
        """What tables and reports call the data."""
        return self.kind


class CriteoDataset(TableRows):
    """Text in Criteo's format: label, 13 integers, 26 hexadecimal categories, tab-separated; plain or gzip."""

    kind: Literal["criteo"]
    variant: Literal["kaggle", "terabyte"]
    """The two public sets share their 40 columns but not the columns' meaning: they are never mixed."""
    path: str
    """Text file. Environment variables are expanded when it is read, not before."""
    eval_fraction: Annotated[float, Field(gt=0, lt=1)] = 1 / 7
    """Last part of the file, in file (time) order, kept for evaluation."""

    @property
    def name(self) -> str:
        """What tables and reports call the data."""
        return f"{self.kind}-{self.variant}"


Dataset = Annotated[SyntheticDataset | CriteoDataset, Field(discriminator="kind")]


# --- model and training -----------------------------------------------------------------------------------------------


class DlrmModel(Strict):
    """DLRM: bottom MLP, dot interaction, top MLP (Naumov et al., arXiv:1906.00091)."""

    embedding_dim: Annotated[int, Field(ge=4, multiple_of=4)] = 16
    """D. fbgemm's CPU kernels want a multiple of 4."""
    bottom_mlp: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = [64, 16]
    """Widths after the 13 inputs. The last one is D."""
    top_mlp: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = [256, 64, 1]
    """Widths after the interaction. The last one is 1, the logit."""

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        if self.bottom_mlp[-1] != self.embedding_dim:
            raise ValueError(f"bottom_mlp ends in {self.bottom_mlp[-1]}, want embedding_dim = {self.embedding_dim}")
        if self.top_mlp[-1] != 1:
            raise ValueError(f"top_mlp ends in {self.top_mlp[-1]}, want 1 (the logit)")
        return self


class DenseOptimizer(Strict):
    """Optimizer of the dense parameters, the same in every cell: it is no factor."""

    kind: Literal["sgd", "adagrad"] = "adagrad"
    lr: Annotated[float, Field(gt=0)] = 0.02


Kernel = Literal["fbgemm", "torch"]


class Training(Strict):
    """What all cells share: one pass over the data, then evaluation on the whole evaluation set."""

    dense_optimizer: DenseOptimizer = DenseOptimizer()
    kernel: Kernel = "fbgemm"
    """What looks up and updates embedding rows: fbgemm's kernels, or the reference in plain PyTorch."""
    eval_batch: Annotated[int, Field(ge=1)] = 8192
    """Samples in one evaluation step over all ranks. Memory only: the metrics don't depend on it."""
    warmup_steps: Annotated[int, Field(ge=0)] = 5
    """First steps of each run, trained as all others but left out of its timing."""


class Scaling(Strict):
    """Strong scaling fixes the global batch, weak scaling the batch of a rank. Exactly one is given."""

    global_batch: Annotated[int, Field(ge=1)] | None = None
    rank_batch: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.global_batch is None) == (self.rank_batch is None):
            raise ValueError("give exactly one of global_batch (strong scaling) and rank_batch (weak scaling)")
        return self

    def global_batch_at(self, ranks: int) -> int:
        """Samples in one step over all ranks."""
        return self.global_batch if self.global_batch is not None else ranks * (self.rank_batch or 0)


# --- factors ----------------------------------------------------------------------------------------------------------

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


# --- analysis ---------------------------------------------------------------------------------------------------------

Metric = Literal["ne", "logloss", "auc", "samples_per_second"]


class Factorial(Strict):
    """The 2 × 2 whose main effects and interaction are estimated: [reference level, other level] of each factor."""

    layouts: Annotated[list[Label], Field(min_length=2, max_length=2)]
    optimizers: Annotated[list[Label], Field(min_length=2, max_length=2)]


class Comparison(Strict):
    """A row of the confirmatory family: a comparison and the metric it is judged by."""

    comparison: str
    metric: Metric


class Analysis(Strict):
    """To be fixed before the runs, whose records hold its hash: comparisons, margins and the confirmatory family (Holm)."""

    factorial: Factorial
    pairs: dict[Label, Annotated[list[str], Field(min_length=2, max_length=2)]] = {}
    """Further comparisons by name: [reference, other], each `layout.optimizer`."""
    margins: dict[Metric, Annotated[float, Field(gt=0)]] = {}
    """Equivalence margin of each metric, in its unit; for samples_per_second as a ratio's natural logarithm."""
    confirmatory: list[Comparison] = []
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


# --- the experiment ---------------------------------------------------------------------------------------------------


class Experiment(Strict):
    """One experiment file. Cells are layouts × optimizers × scaling; a block is one seed at one rank count."""

    name: Label
    title: str
    question: str
    """What the experiment answers, in a sentence, for the report's head."""
    dataset: Dataset
    model: DlrmModel = DlrmModel()
    training: Training = Training()
    ranks: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0, le=2**63 - 1)]], Field(min_length=1)]
    scaling: Annotated[dict[Label, Scaling], Field(min_length=1)]
    layouts: Annotated[dict[Label, Layout], Field(min_length=1)]
    optimizers: Annotated[dict[Label, Optimizer], Field(min_length=1)]
    analysis: Analysis

    @field_validator("ranks", "seeds")
    @classmethod
    def _no_repeats(cls, values: list[int]) -> list[int]:
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            raise ValueError(f"{repeated} given more than once")
        return values
