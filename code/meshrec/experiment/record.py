"""The run record: everything known about one run, written once, atomically. Tables, statistics and figures start here."""

import json
import os
import secrets
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class RecordError(ValueError):
    """A record that can't be used. The message names the file and the field."""


class Closed(BaseModel):
    """No key but the declared ones: a record of another version is refused, not half understood."""

    model_config = ConfigDict(extra="forbid")


class Hashes(Closed):
    """Identities that pair the runs of a block. Each is computed from what the run really held or consumed."""

    init: str
    """Initial weights of tables and dense parameters, independent of T, layout and sharding."""
    order: str
    """Samples served, with their positions, over all ranks."""
    plan: str
    """Sharding plan: which rank of a group holds which rows."""
    data: str
    """Prepared columns."""


class Metrics(Closed):
    """Quality on the whole evaluation set and speed over all steps but the warm-up."""

    samples: int
    """Training samples consumed."""
    eval_samples: int
    logloss: float
    """Mean negative log-likelihood in nats."""
    ne: float
    """Normalised entropy: logloss over the entropy of the evaluation set's own click rate (He et al., ADKDD 2014)."""
    auc: float
    train_loss: float
    """Mean training logloss over the last tenth of the steps."""
    steps: int
    timed_steps: int
    step_seconds: float
    """Mean over timed steps of the slowest rank's time."""
    samples_per_second: float
    """Samples of the timed steps over their total time on the slowest rank."""


class Phase(Closed):
    """Seconds a step spends in one phase."""

    mean: float
    """Mean over steps and ranks."""
    max: float
    """Mean over steps, of the slowest rank."""
    p50: float
    p95: float
    """Quantiles over steps of the mean over ranks."""


class Traffic(Closed):
    """Bytes that one kind of collective sends in a training step, mean over ranks and steps."""

    dimension: Literal["shard", "replicate", "world"]
    """Mesh dimension it runs over."""
    calls: float
    counted: float
    analytic: float
    """What the formula in `measure/wire.py` says for the same step; equal to `counted`."""


class Memory(Closed):
    """Bytes of one component on a rank: from the live tensors, and as the accounting formula says."""

    measured_mean: float
    measured_max: float
    analytic_mean: float | None = None
    analytic_max: float | None = None


class RunRecord(Closed):
    """One run of one cell: finished, or failed with its reason."""

    schema_version: Literal[1] = 1
    experiment: str
    ranks: int
    seed: int
    cell: str
    """`layout.optimizer.scaling`."""
    status: Literal["ok", "failed"]
    reason: str | None = None
    factors: dict[str, Any]
    """Labels and levels of the factors: layout, replicas, rank_order, sharding, sync, sync_every, optimizer, kind, lr, …"""
    settings: dict[str, Any]
    settings_hash: str
    analysis_hash: str
    """Of the experiment file's analysis section (margins, family) when the run was made."""
    hashes: Hashes | None = None
    live: dict[str, Any] | None = None
    """Read off the wrapped objects, never from the settings: mesh, optimizer class, learning rate, ε, c."""
    metrics: Metrics | None = None
    phases: dict[str, Phase] = {}
    traffic: dict[str, Traffic] = {}
    memory: dict[str, Memory] = {}
    environment: dict[str, Any]
    """Versions, hardware, device, execution mode, threads, hostname-free."""
    data: dict[str, Any] = {}
    """Identity of the data set: kind, name, samples, click rates and, for synthetic data, the best reachable metrics."""
    stages: dict[str, float] = {}
    """Seconds of set-up, training and evaluation, on rank 0."""
    started_at: str
    """ISO 8601, UTC."""
    wall_seconds: float


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write atomically: a reader sees the whole file or none, and a killed write leaves no finished-looking file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # not tempfile's: that one is readable by its owner alone, and results are shared
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            json.dump(value, file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_record(path: Path, record: RunRecord) -> None:
    """Write one run record atomically."""
    write_json(path, record.model_dump(mode="json"))


def read_record(path: Path) -> RunRecord:
    """Read one run record.

    Raises:
        RecordError: the file is missing, damaged or of another schema version; the message names it and says what to do.
    """
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise RecordError(
            f"{path}: {where}: {first['msg']} ({error.error_count()} problems); delete it and run its block again"
        ) from None
