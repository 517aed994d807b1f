"""Builds the prepared columns of a data set, or finds them already built. Imports are late: a check needs no parser."""

import logging
import os
from pathlib import Path
from typing import Any, assert_never

from meshrec.data.columns import DataError
from meshrec.data.criteo import key_of, write_criteo
from meshrec.data.layout import CriteoError
from meshrec.data.source import expand_path
from meshrec.data.store import Manifest, Source, Store, StoreError, open_store, sha256_of
from meshrec.data.writer import StoreWriter
from meshrec.experiment.schema import CriteoDataset, Dataset, SyntheticDataset

logger = logging.getLogger(__name__)


def available(dataset: Dataset) -> str | None:
    """None if the input of a data set can be had, else the reason why not. Cheap: reads no data."""
    if isinstance(dataset, SyntheticDataset):
        return None
    for file in dataset.files:
        try:
            path = expand_path(file)
        except CriteoError as error:
            return str(error)
        if not path.is_file():
            return f"dataset.path {file!r}: {path} is no file"
    return None


def prepare(dataset: Dataset, out: Path, workers: int | None = None) -> Store:
    """Build the data set's store in `out`, unless a whole one with the same settings and the same source is there.

    Args:
        dataset: what to prepare.
        out: folder of the store.
        workers: threads that parse; all cores that this process may use when left out. They don't change the result.

    Raises:
        DataError: the input can't be used, or `out` holds something else. Nothing finished-looking is left behind.
    """
    if reason := available(dataset):
        raise DataError(reason)
    if store := _reusable(dataset, out):
        return store
    with StoreWriter(out, _key_of(dataset)) as writer:
        if store := _reusable(dataset, out):  # another process built it while this one waited
            return store
        logger.info("%s: preparing %s data", out, dataset.kind)
        store = _build(dataset, writer, workers or len(os.sched_getaffinity(0)))
    _report(store.manifest, out)
    return store


def _key_of(dataset: Dataset) -> str:
    """What an interrupted build must have in common with this one, for this one to go on from there."""
    if isinstance(dataset, SyntheticDataset):
        from meshrec.data.synthetic import key_of as key_of_synthetic

        return key_of_synthetic(dataset)
    return key_of(dataset)


def _build(dataset: Dataset, writer: StoreWriter, workers: int) -> Store:
    common: dict[str, Any] = {"settings": dataset.model_dump(mode="json"), "table_rows": dataset.rows_of_tables}
    if isinstance(dataset, SyntheticDataset):
        from meshrec.data.synthetic import write_synthetic

        facts = write_synthetic(dataset, writer, workers)
        return writer.finish(dataset.train_samples, kind=dataset.kind, name=dataset.name, **facts, **common)
    if isinstance(dataset, CriteoDataset):
        train, facts = write_criteo(dataset, writer, workers)
        return writer.finish(train, kind=dataset.kind, name=dataset.name, **facts, **common)
    assert_never(dataset)


def _reusable(dataset: Dataset, out: Path) -> Store | None:
    """The store in `out`, if all its bytes are right and it is what would be built."""
    if not out.is_dir() or not any(out.iterdir()):
        return None
    try:
        store = open_store(out)
        if store.manifest.settings != dataset.model_dump(mode="json"):
            logger.info("%s: prepared with other settings; building it again", out)
            return None
        store.verify()
    except StoreError as error:
        logger.warning("%s; building it again", error)
        return None
    if isinstance(dataset, CriteoDataset) and store.manifest.sources != [_source(expand_path(f)) for f in dataset.files]:
        logger.info("%s: the text has changed since; building it again", out)
        return None
    return store


def _source(path: Path) -> Source:
    return Source(file=path.name, bytes=path.stat().st_size, sha256=sha256_of(path))


def _report(manifest: Manifest, out: Path) -> None:
    logger.info(
        "%s: %d training rows (click rate %s), %d evaluation rows (click rate %s), data %s",
        out,
        manifest.train,
        _rate(manifest.train_click_rate),
        manifest.evaluation,
        _rate(manifest.evaluation_click_rate),
        manifest.data_hash[:16],
    )
    if (best := manifest.optimum) is not None:
        logger.info("%s: best reachable logloss %.5f, NE %.5f, AUC %.5f", out, best.logloss, best.ne, best.auc)


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.4f}"
