"""Model and training settings of an experiment file."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from meshrec.experiment.base import CATEGORICAL_FEATURES, Strict


def _each_table(least: int, multiple: int = 1) -> BeforeValidator:
    """Accepts one whole number for all tables or one for each; by hand, as a union's errors would come once for each branch."""
    wanted = f"a whole number ≥ {least}" + (f" that is a multiple of {multiple}" if multiple > 1 else "")

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) != CATEGORICAL_FEATURES:
            raise ValueError(f"found {len(value)} numbers, want one number or {CATEGORICAL_FEATURES}, one for each table")
        for table, number in enumerate(value if isinstance(value, list) else [value]):
            if type(number) is not int or number < least or number % multiple:
                where = f"table {table}: " if isinstance(value, list) else ""
                raise ValueError(f"{where}found {number!r}, want {wanted}")
        return value

    return BeforeValidator(check)


def _of_tables(setting: int | list[int]) -> list[int]:
    return list(setting) if isinstance(setting, list) else [setting] * CATEGORICAL_FEATURES


Widths = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]


class ModelSettings(Strict):
    """What all models have: embeddings of the categories, a bottom MLP for the numbers, a top MLP that ends in the logit."""

    kind: Literal["dlrm", "dcnv2"]
    embedding_dim: Annotated[int | list[int], _each_table(least=4, multiple=4)] = 16
    """Columns of the tables, one number for all 26 or one for each. fbgemm's CPU kernels want a multiple of 4."""
    hots: Annotated[int | list[int], _each_table(least=1)] = 1
    """Ids that a sample has in each table, whose rows are summed: one number for all 26 tables or one for each."""
    bottom_mlp: Widths = [64, 16]
    """Widths after the 13 inputs."""
    top_mlp: Widths = [256, 64, 1]
    """Widths after the interaction. The last one is 1, the logit."""

    @field_validator("top_mlp")
    @classmethod
    def _ends_in_the_logit(cls, widths: list[int]) -> list[int]:
        if widths[-1] != 1:
            raise ValueError(f"top_mlp ends in {widths[-1]}, want 1 (the logit)")
        return widths

    @property
    def dims_of_tables(self) -> list[int]:
        """Columns of each of the 26 tables."""
        return _of_tables(self.embedding_dim)

    @property
    def hots_of_tables(self) -> list[int]:
        """Ids of a sample in each of the 26 tables."""
        return _of_tables(self.hots)


class DlrmModel(ModelSettings):
    """DLRM: bottom MLP, dot interaction, top MLP (Naumov et al., arXiv:1906.00091).

    D is the bottom MLP's last width. Given a list of dimensions, a table with another one than D gets a linear projection to D
    (mixed-dimension embeddings: Ginart et al., arXiv:1909.11810).
    """

    kind: Literal["dlrm"] = "dlrm"

    bottom_mlp: Annotated[Widths, Field(validate_default=True)] = [64, 16]
    """Widths after the 13 inputs. The last one is D."""

    @field_validator("bottom_mlp")
    @classmethod
    def _ends_in_the_dimension(cls, widths: list[int], info: ValidationInfo) -> list[int]:
        dim = info.data.get("embedding_dim")
        if isinstance(dim, int) and widths[-1] != dim:
            raise ValueError(f"bottom_mlp ends in {widths[-1]}, want embedding_dim = {dim}")
        return widths


class Dcnv2Model(ModelSettings):
    """MLPerf's DLRM-DCNv2: low-rank cross layers over the bottom MLP's output and all embeddings side by side, then the top MLP
    (DCN-v2: Wang et al., arXiv:2008.13535)."""

    kind: Literal["dcnv2"]
    cross_layers: Annotated[int, Field(ge=1)] = 3
    cross_rank: Annotated[int, Field(ge=1)] = 32
    """Rank of a cross layer's matrix. MLPerf has 512, for 128 columns a table."""


def _dlrm_unless_said(value: object) -> object:
    return {"kind": "dlrm", **value} if isinstance(value, dict) else value


Model = Annotated[Annotated[DlrmModel | Dcnv2Model, Field(discriminator="kind")], BeforeValidator(_dlrm_unless_said)]


class DenseOptimizer(Strict):
    """Optimizer of the dense parameters, the same in every cell: it is no factor."""

    kind: Literal["sgd", "adagrad"] = "adagrad"
    lr: Annotated[float, Field(gt=0)] = 0.02


Kernel = Literal["fbgemm", "numba", "torch"]
Execution = Literal["ranks", "virtual"]


class Training(Strict):
    """What all cells share: one pass over the data, then evaluation on the whole evaluation set."""

    dense_optimizer: DenseOptimizer = DenseOptimizer()
    kernel: Kernel = "fbgemm"
    """What looks up and updates embedding rows: fbgemm's kernels (CPU and GPU), compiled loops (CPU only, more optimizers), or
    the reference in plain PyTorch (any device, all optimizers)."""
    pipeline: Literal["sequential", "prefetch"] = "prefetch"
    """Whether the next batch is fetched and its ids exchanged while a step computes. The numbers are the same to the bit."""
    execution: Execution = "ranks"
    """T processes, or the same mathematics of the M groups in one process: for quality with many seeds, never for timing."""
    checkpoint_every: Annotated[int, Field(ge=1)] | None = None
    """Steps between two checkpoints; none are written when left out. A killed run goes on from the last one, to the bit."""
    keep_checkpoints: bool = False
    """Whether the last checkpoint stays when the run is recorded."""
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
