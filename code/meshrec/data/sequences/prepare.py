"""Builds the store of a sequence data set, or finds it already built."""

import logging
from pathlib import Path

import numpy as np

from meshrec.data.folder import built_folder
from meshrec.data.sequences.arrange import arrange
from meshrec.data.sequences.read import RawEvents, read_events
from meshrec.data.sequences.store import KNOWN_FILES, Counts, SequenceManifest, SequenceStore, open_sequences, write_sequences
from meshrec.data.sequences.text import SequenceError
from meshrec.data.source import expand_path
from meshrec.data.store import REJECTED, Source, StoreError, sha256_of
from meshrec.experiment.sequences import SequenceDataset

logger = logging.getLogger(__name__)


def prepare_sequences(dataset: SequenceDataset, out: Path) -> SequenceStore:
    """Build the data set's store in `out`, unless a whole one with the same settings and the same source is there.

    Memory grows with the events: about 90 bytes for each at the peak, ids included, for ten events a user.

    Raises:
        DataError: the input can't be used, or `out` holds something else. Nothing finished-looking is left behind.
    """
    path = expand_path(dataset.path, "path")
    if not path.is_file():
        raise SequenceError(f"path {dataset.path!r}: {path} is no file")
    if store := _reusable(dataset, path, out):
        return store
    with built_folder(out, KNOWN_FILES) as folder:
        raw = read_events(dataset, path, folder / REJECTED)
        sequences = arrange(raw, dataset, path.name)
        write_sequences(
            folder,
            sequences,
            dataset.newest_first,
            name=dataset.name,
            settings=dataset.model_dump(mode="json"),
            read=_counts_of(raw),
            lines=raw.lines,
            rejected=raw.rejected,
            source=raw.source,
        )
    store = open_sequences(out)
    _report(store.manifest, out)
    return store


def _counts_of(raw: RawEvents) -> Counts:
    return Counts(users=len(np.unique(raw.users)), items=len(np.unique(raw.items)), events=len(raw.users))


def _reusable(dataset: SequenceDataset, path: Path, out: Path) -> SequenceStore | None:
    """The store in `out`, if all its bytes are right and it is what would be built."""
    if not out.is_dir() or not any(out.iterdir()):
        return None
    try:
        store = open_sequences(out)
        if store.manifest.settings != dataset.model_dump(mode="json"):
            logger.info("%s: prepared with other settings; building it again", out)
            return None
        store.verify()
    except StoreError as error:
        logger.warning("%s; building it again", error)
        return None
    if store.manifest.source != Source(file=path.name, bytes=path.stat().st_size, sha256=sha256_of(path)):
        logger.info("%s: the text has changed since; building it again", out)
        return None
    return store


def _report(manifest: SequenceManifest, out: Path) -> None:
    kept, read = manifest.counts, manifest.read
    logger.info("%s: %d users, %d items, %d events, data %s", out, kept.users, kept.items, kept.events, manifest.data_hash[:16])
    if kept != read:
        logger.warning(
            "%s: left out by the filters: %d users, %d items, %d events",
            out,
            read.users - kept.users,
            read.items - kept.items,
            read.events - kept.events,
        )
    if manifest.rejected:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(manifest.rejected.items()))
        logger.warning("%s: %d lines rejected (%s): see %s", out, sum(manifest.rejected.values()), reasons, REJECTED)
    if manifest.duplicates:
        done = "dropped" if manifest.settings["duplicates"] == "drop" else "kept"
        logger.warning("%s: %d events are like another in user, item and time; they are %s", out, manifest.duplicates, done)
