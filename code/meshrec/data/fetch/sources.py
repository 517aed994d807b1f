"""The table of public data sets, data/sources.toml: what there is, where, how large, under which terms."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from meshrec.data.fetch.errors import FetchError

TABLE = Path(__file__).resolve().parents[4] / "data" / "sources.toml"
"""The checkout's own table."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""A file or folder name without any path in it: downloads can't land elsewhere."""
Address = Annotated[str, Field(pattern=r"^(https?|file)://")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Bytes = Annotated[int, Field(ge=1)]


class Closed(BaseModel):
    """No key but the declared ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceFile(Closed):
    """One file of a data set."""

    name: Name
    """Its name on disk, whatever addresses and servers call it."""
    urls: list[Address]
    """Addresses in the order in which they are tried; none where a file can only be had by hand."""
    bytes: Bytes | None = None
    about_bytes: Bytes | None = None
    """Rounded length where the exact one isn't known: for planning only."""
    sha256: Sha256 | None = None
    """None is *unverified*: the first download's is recorded and holds from then on."""
    unpack: list[str] = []
    """Members of the archive that are unpacked beside it."""
    unpacked_bytes: Bytes | None = None
    """About how many bytes those take."""

    @model_validator(mode="after")
    def _members_are_plain_files(self) -> Self:
        names = [Path(member).name for member in self.unpack]
        for member in self.unpack:
            if member.startswith("/") or ".." in Path(member).parts or "\\" in member or not Path(member).name:
                raise ValueError(f"unpack: {member!r} is no path inside an archive")
        if len({*names, self.name}) < len(names) + 1:
            raise ValueError("unpack: two files would get the same name")
        return self

    @property
    def planned_bytes(self) -> int | None:
        """Length to plan disk space with: exact, else rounded, else None."""
        return self.bytes or self.about_bytes


class ExperimentKey(Closed):
    """The data set of experiment files that this source is."""

    kind: Literal["criteo"]
    variant: Literal["kaggle", "terabyte"]


class Source(Closed):
    """One version of a data set."""

    name: Name
    version: Name
    title: str
    licence: str
    licence_page: Address
    accept: str | None = None
    """What a user must agree to; None where nothing is asked."""
    pages: Annotated[list[Address], Field(min_length=1)]
    """Where the facts are from."""
    files: Annotated[list[SourceFile], Field(min_length=1)]
    by_hand: str | None = None
    """What to do where no address can be asked without an account."""
    note: str | None = None
    rows: Bytes | None = None
    """Labelled rows."""
    experiment: ExperimentKey | None = None

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [name for file in self.files for name in (file.name, *(Path(member).name for member in file.unpack))]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"files: {repeated} more than once")
        return self

    def key(self, file: SourceFile) -> str:
        """Name of a file among all versions of all sets."""
        return f"{self.name}/{self.version}/{file.name}"

    def chosen(self, names: list[str]) -> list[SourceFile]:
        """Files of these names, or all of them.

        Raises:
            FetchError: there is none of that name.
        """
        known = {file.name: file for file in self.files}
        for name in names:
            if name not in known:
                raise FetchError(f"{self.name} has no file {name!r}; it has {', '.join(known)}")
        return [known[name] for name in known if name in names] if names else self.files


def load_sources(table: Path = TABLE) -> dict[str, Source]:
    """All data sets of a table by name.

    Raises:
        FetchError: the table can't be read, or an entry is wrong; the message names it.
    """
    try:
        content = tomllib.loads(table.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FetchError(f"{table}: can't be read: {reason}; it is the table of data sets, see --sources") from None
    if (version := content.pop("schema_version", None)) != 1:
        raise FetchError(f"{table}: schema_version is {version}, want 1")
    return {name: _source(table, name, entry) for name, entry in content.items()}


def _source(table: Path, name: str, entry: object) -> Source:
    try:
        return Source.model_validate({"name": name, **entry} if isinstance(entry, dict) else entry)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (name, *first["loc"])))
        raise FetchError(f"{table}: {where}: {first['msg']}") from None


def source_named(name: str, sources: dict[str, Source]) -> Source:
    """One data set.

    Raises:
        FetchError: there is none of that name; the message lists those that there are.
    """
    if name not in sources:
        raise FetchError(f"{name}: no data set of this name; there are {', '.join(sources)}")
    return sources[name]
