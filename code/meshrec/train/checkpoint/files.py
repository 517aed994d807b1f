"""A checkpoint on disk: a folder `step-N` with its manifest, complete or not there."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

MANIFEST = "manifest.json"
PARTIAL = ".partial-"


class CheckpointError(RuntimeError):
    """A checkpoint that can't be used. The message names the file or the field, what was found and what was wanted."""


class Manifest(BaseModel):
    """What a checkpoint is of."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    step: int
    """Steps done."""
    settings: dict[str, Any]
    """All that the run's numbers depend on: lr, ε, c, M and K among them."""
    data_hash: str
    plan_hash: str
    replicas_differ: bool
    """Between two averages, or with moments of their own, the M replicas are stored one by one."""
    kernel_steps: int
    """Updates that the kernels count."""
    files: dict[str, str]
    """SHA-256 of every other file."""


def folder_of(out: Path, cell: str) -> Path:
    """Where the checkpoints of a cell lie."""
    return out / f"{cell}.checkpoint"


def latest(folder: Path) -> Path | None:
    """The last complete checkpoint in a cell's folder."""
    complete = [path for path in folder.glob("step-*") if (path / MANIFEST).is_file()]
    return max(complete, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def begin(folder: Path, step: int) -> Path:
    """An empty folder to write a checkpoint into; what a killed write left behind goes."""
    for left_over in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(left_over)
    partial = folder / f"{PARTIAL}{step}"
    partial.mkdir(parents=True)
    return partial


def complete(partial: Path, manifest: Manifest) -> Path:
    """Give a written checkpoint its name, and remove the ones before it."""
    folder, final = partial.parent, partial.parent / f"step-{manifest.step}"
    with (partial / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest.model_dump(), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    if final.exists():  # of a run that was resumed from an earlier one
        shutil.rmtree(final)
    partial.rename(final)
    for older in folder.glob("step-*"):
        if older != final:
            shutil.rmtree(older)
    return final


def remove_all(folder: Path) -> None:
    """Remove a cell's checkpoints: its record is written."""
    shutil.rmtree(folder, ignore_errors=True)


def read_manifest(path: Path) -> Manifest:
    """Manifest of a checkpoint.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        manifest = Manifest.model_validate_json((path / MANIFEST).read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path / MANIFEST}: can't be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise CheckpointError(f"{path / MANIFEST}: {where}: {first['msg']}; remove {path} to begin anew") from None
    if any(Path(name).name != name for name in manifest.files):
        raise CheckpointError(f"{path / MANIFEST}: files: names a file outside the checkpoint; remove {path} to begin anew")
    return manifest


def damaged_files(path: Path, manifest: Manifest, share: int, shares: int) -> list[str]:
    """Files of one of so many equal shares that are missing or have other bytes than when they were written."""
    mine = sorted(manifest.files)[share::shares]
    return [name for name in mine if not (path / name).is_file() or sha256(path / name) != manifest.files[name]]


def sha256(path: Path) -> str:
    """Digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
