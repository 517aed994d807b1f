"""Data sets of an experiment file."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

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


class LabelNoise(Strict):
    """Labels that are replaced after they were drawn from the planted model. The planted optimum accounts for it."""

    kind: Literal["coin", "flip"]
    """A replaced label is a fair coin, or the other label."""
    rate: Annotated[float, Field(ge=0, le=1)]
    """Probability that a label is replaced. With more noise, labels replaced with less of it still are."""

    @property
    def flip_rate(self) -> float:
        """Probability that a label ends as the other one."""
        return self.rate if self.kind == "flip" else self.rate / 2


Exponent = Annotated[float, Field(ge=0, le=4)]
HeadShare = Annotated[float, Field(gt=0, lt=1)]
Coherence = Annotated[float, Field(gt=-1, lt=1)]


class SyntheticDataset(TableRows):
    """Criteo-like rows with a planted click model, whose best reachable metrics are known."""

    kind: Literal["synthetic"]
    train_samples: Annotated[int, Field(ge=1)]
    eval_samples: Annotated[int, Field(ge=1)]
    zipf_exponent: Exponent | list[Exponent] | None = None
    """Steepness of the ids' popularity, for all tables or for each: 0 is uniform. 1.05 unless `head_share` is given."""
    head_share: HeadShare | list[HeadShare] | None = None
    """Part of the samples that hit a table's most popular row, for all tables or for each, instead of an exponent: a batch
    of B samples hits that row K = B · head_share times on average."""
    click_rate: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Part of the samples that are clicks, before label noise."""
    strength: Annotated[float, Field(ge=0)] = 1.0
    """Standard deviation of the planted logit: 0 is unlearnable noise. With `head_coherence`, that of all but the head rows."""
    missing_rate: Annotated[float, Field(ge=0, lt=1)] = 0.1
    label_noise: LabelNoise | None = None
    head_coherence: list[Coherence | None] | None = None
    """Gradient coherence of each table's most popular row, ρ = ‖μ‖² / (‖μ‖² + tr Σ) per hit, for a model that predicts the
    click rate: 0 is a row whose gradients are all noise. A positive one has more clicks than others, one given as −ρ has
    fewer; null leaves the row as drawn."""
    seed: int = 0
    """Seed of the data, apart from the seeds of the runs: every run of an experiment sees the same rows."""

    @model_validator(mode="before")
    @classmethod
    def _default_popularity(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        unsaid = data.get("zipf_exponent") is None and data.get("head_share") is None
        return data | {"zipf_exponent": 1.05} if unsaid else data

    @field_validator("zipf_exponent", "head_share", "head_coherence")
    @classmethod
    def _each_table_one(cls, values: Any) -> Any:
        if isinstance(values, list) and len(values) != CATEGORICAL_FEATURES:
            raise ValueError(f"found {len(values)} numbers, want {CATEGORICAL_FEATURES}, one for each table")
        return values

    @model_validator(mode="after")
    def _one_popularity(self) -> Self:
        if self.head_share is None:
            return self
        if self.zipf_exponent is not None:
            raise ValueError("give zipf_exponent or head_share, not both: each says how often the head row is hit")
        present = 1 - self.missing_rate
        for table, (share, rows) in enumerate(zip(self.head_shares, self.rows_of_tables, strict=True)):
            uniform = present / (rows - 1)
            if not math.isclose(share, uniform, rel_tol=1e-9) and not uniform < share <= present * (1 - 1e-9):
                raise ValueError(
                    f"head_share of table {table} is {share:g}: want at least {uniform:.6g}, where its {rows - 1} rows are hit "
                    f"alike, and less than {present:.6g}, since missing_rate is {self.missing_rate:g}"
                )
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # so that hashes of settings, and folders named after them, stay what they were before there were these
        return {key: value for key, value in serialise(self).items() if value is not None or key not in _LATER}

    @property
    def exponents(self) -> list[float] | None:
        """Each table's exponent; None where head shares are given."""
        return None if self.zipf_exponent is None else _for_each_table(self.zipf_exponent)

    @property
    def head_shares(self) -> list[float]:
        """Each table's head share; empty where exponents are given."""
        return [] if self.head_share is None else _for_each_table(self.head_share)

    @property
    def name(self) -> str:
        """What tables and reports call the data."""
        return self.kind


_LATER = {"head_share", "label_noise", "head_coherence"}


def _for_each_table(value: float | list[float]) -> list[float]:
    return list(value) if isinstance(value, list) else [value] * CATEGORICAL_FEATURES


class TextVariant(Strict):
    """How the text differs from Criteo's own. Nothing is tolerated that isn't declared here; each default is the strict one."""

    separator: Literal["tab", "comma"] = "tab"
    header: bool = False
    """The first line of every file names its columns. The names are checked, so that columns in another order are refused."""
    index_column: bool = False
    """A column before all others, `Id` or without a name, that is left out."""
    float_integers: bool = False
    """Integers may be written as `5.0`. `5.5` is rejected all the same."""
    pad_missing_tail: bool = False
    """Rows may have lost empty categories at their end, as after `strip()`. They get them back; nothing is shifted."""


class HashedCategories(Strict):
    """Table row of a category: 1 + value mod (rows − 1). Row 0 is missing."""

    kind: Literal["hashed"] = "hashed"


class VocabularyCategories(Strict):
    """Table row of a category: its own if training rows hold it often enough, else row 1, shared. Row 0 is missing."""

    kind: Literal["vocabulary"]
    min_count: Annotated[int, Field(ge=1)]
    """Training rows that a category must be in to get a row of its own."""
    store: str | None = None
    """Prepared store whose vocabularies are taken instead, as unlabelled rows need. Environment variables are expanded."""


class CriteoDataset(TableRows):
    """Rows in Criteo's format: label, 13 integers, 26 hexadecimal categories; as text (plain, gzip or zstd) or Parquet."""

    kind: Literal["criteo"]
    variant: Literal["kaggle", "terabyte"]
    """The two public sets share their 40 columns but not the columns' meaning: they are never mixed."""
    path: str | Annotated[list[str], Field(min_length=1)]
    """File, or files in time order (one a day). Environment variables are expanded when it is read, not before."""
    eval_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Last part of all rows, in file (time) order, kept for evaluation: 1/7 unless `eval_days` is given."""
    eval_days: Annotated[int, Field(ge=1)] | None = None
    """Last files kept for evaluation, instead of a fraction."""
    labelled: bool = True
    """False for rows to predict: 39 columns, no label. All of them become evaluation rows, and none can be trained on."""
    text: TextVariant = TextVariant()
    categories: Annotated[HashedCategories | VocabularyCategories, Field(discriminator="kind")] = HashedCategories()
    max_rejected: Annotated[int, Field(ge=0, le=10_000_000)] = 100_000
    """Bad rows that are left out, each named in `rejected.tsv`; one more ends the preparation."""

    @model_validator(mode="before")
    @classmethod
    def _default_split(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("labelled", True) is False:
            return data
        unsaid = data.get("eval_fraction") is None and data.get("eval_days") is None
        return data | {"eval_fraction": 1 / 7} if unsaid else data

    @model_validator(mode="after")
    def _one_split(self) -> Self:
        if self.eval_fraction is not None and self.eval_days is not None:
            raise ValueError("give eval_fraction or eval_days, not both: each says which rows are kept for evaluation")
        if self.eval_days is not None and self.eval_days >= len(self.files):
            raise ValueError(f"eval_days is {self.eval_days} of {len(self.files)} files in path: want at least one to train on")
        if len(set(self.files)) < len(self.files):
            raise ValueError("path names a file twice: its rows would be trained on and evaluated on")
        return self

    @model_validator(mode="after")
    def _unlabelled_rows_only_predict(self) -> Self:
        if self.labelled:
            return self
        if self.eval_fraction is not None or self.eval_days is not None:
            raise ValueError("rows without labels aren't split: leave eval_fraction and eval_days out")
        if isinstance(self.categories, VocabularyCategories) and self.categories.store is None:
            raise ValueError("rows without labels can't make a vocabulary: name the training rows' store in categories.store")
        return self

    @property
    def files(self) -> list[str]:
        """All files, in order."""
        return [self.path] if isinstance(self.path, str) else list(self.path)

    @property
    def name(self) -> str:
        """What tables and reports call the data."""
        return f"{self.kind}-{self.variant}"


Dataset = Annotated[SyntheticDataset | CriteoDataset, Field(discriminator="kind")]
