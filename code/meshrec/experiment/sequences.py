"""Settings of sequence data sets, for next-item models."""

from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from meshrec.experiment.base import Strict

Name = Annotated[str, Field(min_length=1)]


class UserLines(Strict):
    """One user a line: the user, then the items, oldest first, separated by blanks. SASRec's benchmark files have it."""

    format: Literal["user_lines"] = "user_lines"


class Pairs(Strict):
    """`user item` on each line, separated by blanks, oldest first."""

    format: Literal["pairs"] = "pairs"


class Inter(Strict):
    """RecBole's `.inter`: tab-separated, with a first line of `name:type`. The item may be a `token`, or a `token_seq` of
    items separated by blanks, one user a line."""

    format: Literal["inter"] = "inter"
    user: Name = "user_id"
    item: Name = "item_id"
    target: Name | None = None
    """Field of further items that follow a `token_seq`, as a target basket."""
    time: Name | None = "timestamp"
    """Field of the times, of as many as there are items; null where the order of the file is that of time."""


class Csv(Strict):
    """Fields with a separator, as Amazon's ratings. Fields may be in double quotes, but not contain line ends."""

    format: Literal["csv"] = "csv"
    separator: Literal["comma", "tab", "semicolon"] = "comma"
    columns: Annotated[list[str], Field(min_length=2)] | None = None
    """Names of all columns of a file without a header line; a header line is wanted when they are left out."""
    user: Name = "user_id"
    item: Name = "item_id"
    time: Name | None = "timestamp"

    @model_validator(mode="after")
    def _named_columns(self) -> Self:
        if self.columns is None:
            return self
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns {self.columns} names one twice")
        if missing := [name for name in (self.user, self.item, self.time) if name is not None and name not in self.columns]:
            raise ValueError(f"columns {self.columns} has no {missing[0]!r}; name it there, or set user, item and time")
        return self


class JsonLines(Strict):
    """One JSON object a line. `user: reviewerID`, `item: asin`, `time: unixReviewTime` are Amazon's names of 2014 and 2018."""

    format: Literal["json_lines"] = "json_lines"
    user: Name = "user_id"
    item: Name = "item_id"
    time: Name | None = "timestamp"


SequenceText = Annotated[UserLines | Pairs | Inter | Csv | JsonLines, Field(discriminator="format")]
FORMATS = ("user_lines", "pairs", "inter", "csv", "json_lines")


class SequenceDataset(Strict):
    """Users and the items that they had to do with, in the order of time; of each user the last is for testing."""

    kind: Literal["sequences"] = "sequences"
    path: Name
    """Text file, plain or compressed by gzip or zstd. Environment variables are expanded when it is read, not before."""
    text: SequenceText
    newest_first: bool = False
    """The file goes back in time: of events at the same time, and of all events without times, the later line is the
    earlier event. Events with different times are in the order of time either way."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Events of the same user, item and time: all are kept and counted, or all but one are dropped."""
    min_user_events: Annotated[int, Field(ge=3)] = 3
    """Users with fewer events are left out: one event is for testing, one for validation, and at least one for training."""
    min_item_events: Annotated[int, Field(ge=1)] = 1
    """Items with fewer events are left out. Both filters are repeated until neither finds anything (k-core)."""
    max_rejected: Annotated[int, Field(ge=0, le=10_000_000)] = 100_000
    """Bad lines that are left out, each named in `rejected.tsv`; one more ends the preparation."""

    @model_validator(mode="after")
    def _duplicates_have_times(self) -> Self:
        if self.duplicates == "drop" and not self.timed:
            raise ValueError("duplicates: drop needs times; without them a repeated item is a repeated event")
        return self

    @property
    def timed(self) -> bool:
        """Whether events have times, other than their order in the file."""
        return getattr(self.text, "time", None) is not None

    @property
    def name(self) -> str:
        """What tables and reports call the data."""
        return f"{self.kind}-{PurePath(self.path).name.split('.')[0]}"
