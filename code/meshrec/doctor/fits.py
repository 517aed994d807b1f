"""Preflight of an experiment on this machine: its data, memory, devices and disk."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshrec.data.fetch.listing import size_text as size
from meshrec.data.fetch.sources import Source
from meshrec.data.prepare import available
from meshrec.data.store import StoreError, open_store
from meshrec.doctor import sizes
from meshrec.doctor.finding import Finding, finding
from meshrec.doctor.limits import device_of, existing, free_bytes
from meshrec.doctor.machine import memory_finding, submits
from meshrec.experiment.cells import Block, batch_period, dataset_id
from meshrec.experiment.schema import Experiment


@dataclass(frozen=True)
class Places:
    """Where things land."""

    data: Path
    """Holds raw/ and prepared/."""
    results: Path


def experiment_findings(experiment: Experiment, sources: Sequence[Source], places: Places) -> Iterator[Finding]:
    """What the experiment needs and whether it is here."""
    source = sizes.source_of(experiment.dataset, sources)
    rows = sizes.rows(experiment.dataset, source)
    prepared = _prepared(experiment, places)
    yield data_finding(experiment, source, prepared)
    if rows is not None:
        yield step_finding(experiment, sizes.training_rows(experiment.dataset, rows))
    for ranks in experiment.ranks:
        block = Block(experiment, ranks, experiment.seeds[0])
        yield memory_finding(f"memory, block of {ranks} rank{'s' * (ranks > 1)}", sizes.block_memory(block), submits())
        yield from gpu_findings(block)
    yield from writable_findings(places)
    yield from disk_findings(_disk_needs(experiment, source, rows, prepared, places))


def _prepared(experiment: Experiment, places: Places) -> Path | None:
    """The store that is ready, if it is."""
    path = places.data / "prepared" / dataset_id(experiment.dataset)
    try:
        open_store(path)
    except StoreError:
        return None
    return path


def data_finding(experiment: Experiment, source: Source | None, prepared: Path | None) -> Finding:
    """The rows: prepared, or what they are prepared from."""
    name = f"data, {experiment.dataset.name}"
    if prepared is not None:
        return Finding(name, str(prepared), "a prepared store", "ok")
    if (reason := available(experiment.dataset)) is None:
        return Finding(name, "can be prepared", "files of dataset.path", "ok")
    fetch = f"; `meshrec fetch {source.name}` brings the whole set to raw/{source.name}" if source else ""
    return Finding(name, "not here", "files of dataset.path", "fails", reason + fetch)


def step_finding(experiment: Experiment, rows: int) -> Finding:
    """Whether a run has at least one step that all global batches divide."""
    period = batch_period(experiment)
    advice = "take smaller global batches or more rows"
    return finding("training rows", f"at most {rows:,}", f"{period:,}, the batches' multiple", rows >= period, advice)


def gpu_findings(block: Block) -> Iterator[Finding]:
    """A rank's share of the tables on each GPU, where every rank gets one."""
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < block.ranks:
        return
    needed = sizes.device_memory(block)
    found = min(torch.cuda.get_device_properties(device).total_memory for device in range(block.ranks))
    advice = "take more ranks, fewer replicas or smaller tables"
    yield finding(f"GPU memory, {block.ranks} ranks", size(found), size(needed), found >= needed, advice)


def writable_findings(places: Places) -> Iterator[Finding]:
    """Folders that are written to."""
    for folder in (places.data, places.results):
        writable = os.access(existing(folder), os.W_OK)
        found = "can be written to" if writable else "can't be written to"
        yield finding(str(folder), found, "writable", writable, f"change its owner or mode: {existing(folder)}")


@dataclass(frozen=True)
class Need:
    """Space that something takes in a folder."""

    what: str
    folder: Path
    bytes: int


def _disk_needs(
    experiment: Experiment, source: Source | None, rows: int | None, prepared: Path | None, places: Places
) -> list[Need]:
    needs = [
        Need("checkpoints", places.results, sizes.checkpoint_bytes(experiment)),
        Need("records", places.results, sizes.record_bytes(experiment)),
    ]
    if prepared is None and rows is not None:
        needs.append(Need("store", places.data, sizes.store_bytes(experiment.dataset, rows)))
    if prepared is None and source is not None and available(experiment.dataset) is not None:
        needs.append(Need("raw", places.data, sizes.raw_bytes(source)))
    return [need for need in needs if need.bytes]


def disk_findings(needs: list[Need]) -> Iterator[Finding]:
    """One finding a file system: what lies on it together must fit together."""
    together: dict[int, list[Need]] = defaultdict(list)
    for need in needs:
        together[device_of(need.folder)].append(need)
    for group in together.values():
        total, free = sum(need.bytes for need in group), free_bytes(group[0].folder)
        folders = " and ".join(sorted({str(need.folder) for need in group}))
        parts = " + ".join(f"{need.what} {size(need.bytes)}" for need in group)
        advice = "make room, or put the folder on another disk"
        yield finding(f"disk of {folders}", f"{size(free)} free", f"{size(total)}: {parts}", free >= total, advice)
