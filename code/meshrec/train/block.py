"""A block: one seed at one rank count. Starts the ranks, resumes at the cell, closes the block when all cells are recorded."""

import logging
import time
from pathlib import Path
from typing import Any

from meshrec.data.store import Store, open_store
from meshrec.experiment.cells import Block, Cell
from meshrec.experiment.record import RecordError, RunRecord, read_record, write_json, write_record
from meshrec.experiment.schema import Experiment
from meshrec.measure.environment import environment
from meshrec.mesh.device import device_of
from meshrec.mesh.launch import RankError, launch
from meshrec.train.run import failed_record
from meshrec.train.worker import RUNNING, Work, work_off

log = logging.getLogger(__name__)

LAUNCH_TIMEOUT = 6 * 3600.0
"""Seconds that a launch may take. A hang ends much sooner, by the collectives' own timeout."""

COLLECTIVE_TIMEOUT = 120.0


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
        BlockError: no such block, the store holds other data, or records that must be paired aren't.
        RankDied, LaunchTimeout: the launch was interrupted. Finished cells are recorded and the next call goes on.
    """
    block = _block(experiment, ranks, seed)
    data = open_store(store)
    if data.manifest.settings != experiment.dataset.model_dump(mode="json"):
        raise BlockError(
            f"{store}: holds another data set than experiment {experiment.name} asks for; run `meshrec prepare` again"
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / RUNNING).unlink(missing_ok=True)
    started = time.perf_counter()
    found = environment()
    pending = [cell for cell in block.cells if not is_recorded(cell, data, out)]
    while pending:
        log.info("block %s: %d of %d cells to run", block.name, len(pending), len(block.cells))
        work = Work(pending, store, out, found, COLLECTIVE_TIMEOUT, log_level)
        try:
            launch(work_off, ranks, work, timeout=LAUNCH_TIMEOUT, collective_timeout=COLLECTIVE_TIMEOUT)
            pending = []
        except RankError as error:
            blamed = _blame(error, pending, data, out, found)
            pending = pending[pending.index(blamed) + 1 :]
    return _close(block, out, time.perf_counter() - started)


def is_recorded(cell: Cell, store: Store, out: Path) -> bool:
    """Whether the cell has a finished record of the same settings, data and device; a damaged one is run again."""
    path = out / f"{cell.name}.json"
    if not path.exists():
        return False
    try:
        record = read_record(path)
    except RecordError as error:
        log.warning("%s", error)
        return False
    same_data = record.hashes is not None and record.hashes.data == store.manifest.data_hash
    same_device = record.environment.get("device") == device_of(0, cell.ranks).type
    return record.status == "ok" and record.settings_hash == cell.settings_hash and same_data and same_device


def _block(experiment: Experiment, ranks: int, seed: int) -> Block:
    for name, value, known in (("ranks", ranks, experiment.ranks), ("seed", seed, experiment.seeds)):
        if value not in known:
            raise BlockError(f"experiment {experiment.name} has no block with {name} {value}; it has {known}")
    return Block(experiment, ranks, seed)


def _blame(error: RankError, pending: list[Cell], store: Store, out: Path, found: dict[str, Any]) -> Cell:
    """Record the failure of the cell that was running; a failure before any cell is nobody's and goes up."""
    running = out / RUNNING
    name = running.read_text() if running.exists() else None
    running.unlink(missing_ok=True)
    cell = next((cell for cell in pending if cell.name == name), None)
    if cell is None:
        raise error
    log.error("%s: %s", cell.name, error)
    write_record(out / f"{cell.name}.json", failed_record(cell, store, found, f"rank {error.rank}: {error.cause}"))
    return cell


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
    write_json(out / "block.json", summary)
    return failed


def _assert_paired(block: Block, records: dict[str, RunRecord]) -> None:
    """Within a block every cell starts from the same weights and sees the same samples of the same data in the same order."""
    for name in ("init", "order", "data"):
        found = {cell: getattr(record.hashes, name) for cell, record in records.items() if record.hashes}
        if len(set(found.values())) > 1:
            raise BlockError(f"block {block.name}: cells differ in their {name} hash, so they can't be compared: {found}")
