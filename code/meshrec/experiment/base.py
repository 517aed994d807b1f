"""What every part of an experiment file is built from."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

CATEGORICAL_FEATURES = 26
DENSE_FEATURES = 13

Label = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=32)]
"""A short name used in file names, tables and figures."""


class Strict(BaseModel):
    """Immutable and closed: a key that is not declared is an error, not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
