"""A block: one seed at one rank count. Starts the ranks, resumes at the cell, closes the block when all cells are recorded."""

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from meshrec.data.store import Store, open_store
from meshrec.experiment.cells import Block, Cell
from meshrec.experiment.record import RecordError, RunRecord, read_record, write_json, write_record
from meshrec.experiment.schema import Experiment
from meshrec.measure.environment import environment
from meshrec.mesh.device import device_of
from meshrec.mesh.launch import LaunchTimeout, RankDied, RankError, launch
from meshrec.train.run import failed_record
from meshrec.train.setup import processes
from meshrec.train.worker import RUNNING, Work, work_off

log = logging.getLogger(__name__)

LAUNCH_TIMEOUT = 6 * 3600.0
"""Seconds that a launch may take. A hang ends much sooner, by the collectives' own timeout."""

COLLECTIVE_TIMEOUT = 300.0
"""Seconds that a rank waits for the others. A rank that fails or dies is noticed at once; this is for one that hangs."""


CLOSED = "block.json"
"""Written when every cell has a record, and only then."""

DEATH = "launch ended: "
"""Begins the reason of a cell whose launch was killed or hung: perhaps an accident, so the next call tries it once more."""


class BlockError(RuntimeError):
    """A block can't be run or closed. The message says what to do."""


def train_block(experiment: Experiment, ranks: int, seed: int, store: Path, out: Path, log_level: int = logging.INFO) -> int:
    """Run the cells of a block that have no record yet, then write `block.json`.

    Args:
        experiment: the experiment.
        ranks: T, one of the experiment's.
        seed: one of the experiment's.
        store: folder of the prepared data set.
        out: folder of the block's records.
        log_level: of rank 0's messages on standard error.

    Returns:
        Number of cells that failed; each is a record with its reason.

    Raises:
        BlockError: no such block; the store holds other or damaged data; another launch works in the folder; records that must
            be paired aren't; or ranks were killed under a cell for the first time: the next call tries it again.
    """
    block = _block(experiment, ranks, seed)
    data = _checked_store(store, experiment)
    out.mkdir(parents=True, exist_ok=True)
    with _only_one(out):
        started = time.perf_counter()
        (out / RUNNING).unlink(missing_ok=True)
        pending = [cell for cell in block.cells if not is_recorded(cell, data, out)]
        if pending:
            (out / CLOSED).unlink(missing_ok=True)
        _run(block, pending, Work([], store, out, environment(), COLLECTIVE_TIMEOUT, log_level), data)
        return _close(block, out, time.perf_counter() - started)


def _run(block: Block, pending: list[Cell], work: Work, data: Store) -> None:
    """Launch the ranks until every pending cell has a record of this call; a failure costs its own cell and a new launch."""
    died_before = {cell.name for cell in pending if _has_died(work.out / f"{cell.name}.json")}
    first_deaths: list[str] = []
    while pending:
        log.info("block %s: %d of %d cells to run", block.name, len(pending), len(block.cells))
        work = replace(work, cells=pending)
        try:
            launch(work_off, processes(pending[0]), work, timeout=LAUNCH_TIMEOUT, collective_timeout=COLLECTIVE_TIMEOUT)
            pending = []
        except (RankError, RankDied, LaunchTimeout) as error:
            blamed = _blame(error, work, data)
            if not isinstance(error, RankError) and blamed.name not in died_before:
                first_deaths.append(f"{blamed.name}: {error}")
            pending = pending[pending.index(blamed) + 1 :]
    if first_deaths:
        raise BlockError(
            f"block {block.name}: {'; '.join(first_deaths)}. The other cells are recorded. Give the same command again: a cell "
            "that dies a second time stays a failed run"
        )


def _checked_store(store: Path, experiment: Experiment) -> Store:
    """The store, proven to be the experiment's, undamaged and fit for evaluation."""
    data = open_store(store)
    if data.manifest.settings != experiment.dataset.model_dump(mode="json"):
        raise BlockError(
            f"{store}: holds another data set than experiment {experiment.name} asks for; run `meshrec prepare` again"
        )
    data.verify()
    if data.manifest.evaluation_click_rate in (0.0, 1.0):
        raise BlockError(
            f"{store}: all {data.manifest.evaluation} evaluation labels are {data.manifest.evaluation_click_rate:.0f}, and "
            "metrics need clicks and non-clicks; take a larger evaluation part"
        )
    return data


@contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """Refuse a second launch into the same folder: both would be slowed down and overwrite each other's records."""
    with (out / ".lock").open("wb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockError(f"{out}: another launch works in this folder; wait for it or end it") from None
        except OSError as error:  # some network file systems have no locks
            log.warning("%s: %s; start no second launch into it", out, error.strerror)
        yield


def is_recorded(cell: Cell, store: Store, out: Path) -> bool:
    """Whether the cell has a finished record of the same settings, data and device; a damaged one is run again."""
    path = out / f"{cell.name}.json"
    if not path.exists():
        return False
    if not path.is_file():
        raise BlockError(f"{path}: is no file, want the record of a run; move it away")
    try:
        record = read_record(path)
    except RecordError as error:
        log.warning("%s", error)
        return False
    same_data = record.hashes is not None and record.hashes.data == store.manifest.data_hash
    same_device = record.environment.get("device") == device_of(0, processes(cell)).type
    return record.status == "ok" and record.settings_hash == cell.settings_hash and same_data and same_device


def _block(experiment: Experiment, ranks: int, seed: int) -> Block:
    for name, value, known in (("ranks", ranks, experiment.ranks), ("seed", seed, experiment.seeds)):
        if value not in known:
            raise BlockError(f"experiment {experiment.name} has no block with {name} {value}; it has {known}")
    return Block(experiment, ranks, seed)


def _blame(error: RankError | RankDied | LaunchTimeout, work: Work, store: Store) -> Cell:
    """Record the failure of the cell that was running; a failure before any cell is nobody's and goes up."""
    running = work.out / RUNNING
    name = running.read_text() if running.exists() else None
    running.unlink(missing_ok=True)
    cell = next((cell for cell in work.cells if cell.name == name), None)
    if cell is None:
        raise error
    log.error("%s: %s", cell.name, error)
    reason = f"rank {error.rank}: {error.cause}" if isinstance(error, RankError) else f"{DEATH}{error}"
    write_record(work.out / f"{cell.name}.json", failed_record(cell, store, work.environment, reason))
    return cell


def _has_died(path: Path) -> bool:
    """Whether a record says that the launch ended under the cell, for no reason that a rank could give."""
    try:
        return path.exists() and (read_record(path).reason or "").startswith(DEATH)
    except RecordError:
        return False


def _close(block: Block, out: Path, seconds: float) -> int:
    """Write `block.json`, once the finished records are proven to be pairs; returns the number of failed cells."""
    records = {cell.name: read_record(out / f"{cell.name}.json") for cell in block.cells}
    _assert_paired(block, records)
    failed = sum(record.status == "failed" for record in records.values())
    summary = {
        "experiment": block.experiment.name,
        "ranks": block.ranks,
        "seed": block.seed,
        "order": [cell.name for cell in block.cells],
        "status": {name: record.status for name, record in records.items()},
        "seconds_of_this_call": seconds,
    }
    write_json(out / CLOSED, summary)
    return failed


def _assert_paired(block: Block, records: dict[str, RunRecord]) -> None:
    """Within a block every cell starts from the same weights and sees the same samples of the same data in the same order."""
    for name in ("init", "order", "data"):
        found = {cell: getattr(record.hashes, name) for cell, record in records.items() if record.hashes}
        if len(set(found.values())) > 1:
            raise BlockError(f"block {block.name}: cells differ in their {name} hash, so they can't be compared: {found}")
