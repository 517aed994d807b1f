"""Model and training settings of an experiment file."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from meshrec.experiment.base import Strict


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
