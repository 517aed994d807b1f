"""Data sets of an experiment file."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from meshrec.experiment.base import CATEGORICAL_FEATURES, Strict


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
