"""The typed schema of an experiment file: data set, model, training, factors and analysis.

Every field that a run depends on is here, so that a resolved cell says all there is to know about it. Unknown keys are errors.
The parts have files of their own; this one puts them together.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from meshrec.experiment.base import CATEGORICAL_FEATURES, DENSE_FEATURES, Label, Strict
from meshrec.experiment.datasets import CriteoDataset, Dataset, SyntheticDataset
from meshrec.experiment.factors import (
    DensityScaledRowwiseAdagrad,
    EpsPlacement,
    Layout,
    MomentScaledRowwiseAdagrad,
    MomentumRowwiseAdagrad,
    Optimizer,
    RankOrder,
    RowwiseAdagrad,
    Sgd,
    Sharding,
)
from meshrec.experiment.modelling import Dcnv2Model, DenseOptimizer, DlrmModel, Kernel, Model, Scaling, Training

__all__ = [
    "CATEGORICAL_FEATURES",
    "DENSE_FEATURES",
    "Analysis",
    "Comparison",
    "CriteoDataset",
    "Dataset",
    "Dcnv2Model",
    "DenseOptimizer",
    "DensityScaledRowwiseAdagrad",
    "DlrmModel",
    "EpsPlacement",
    "Experiment",
    "Factorial",
    "Kernel",
    "Label",
    "Layout",
    "Metric",
    "Model",
    "MomentScaledRowwiseAdagrad",
    "MomentumRowwiseAdagrad",
    "Optimizer",
    "RankOrder",
    "RowwiseAdagrad",
    "Scaling",
    "Sgd",
    "Sharding",
    "Strict",
    "SyntheticDataset",
    "Training",
]

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


class Experiment(Strict):
    """One experiment file. Cells are layouts × optimizers × scaling; a block is one seed at one rank count."""

    name: Label
    title: str
    question: str
    """What the experiment answers, in a sentence, for the report's head."""
    dataset: Dataset
    model: Model = DlrmModel()
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
