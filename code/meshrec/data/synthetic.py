"""Writes synthetic rows of a planted click model into a store, in memory that doesn't grow with their number."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshrec.data.columns import Rows
from meshrec.data.heads import head_rows
from meshrec.data.optimum import TruthQuality
from meshrec.data.planted import CHUNK_ROWS, Planted, plant
from meshrec.data.store import Optimum
from meshrec.data.writer import StoreWriter
from meshrec.experiment.cells import hash_of
from meshrec.experiment.schema import SyntheticDataset

CHECKPOINT_CHUNKS = 256
"""Chunks between two checkpoints: 8.4 million rows, 1.3 GB."""
AHEAD = 2
"""Chunks that are under way beside one for each worker, 25 MB each."""
GENERATOR = 1
"""Version of what the settings become. A build that another version began is not gone on with."""
Chunk = tuple[Rows, NDArray[np.float64]]
"""Rows and the logits of their true click probabilities, label noise included."""


def generate(planted: Planted, rows: int, first: int = 0, workers: int = 1) -> Iterator[Chunk]:
    """Rows from that of index `first` to that before `rows`, chunk by chunk with their true logits.

    A row doesn't depend on how many follow, nor on the workers. Memory holds `workers + AHEAD` chunks.
    """
    waiting: deque[tuple[int, Future[Chunk]]] = deque()

    def next_of_them() -> Chunk:
        start, future = waiting.popleft()
        batch, logit = future.result()
        wanted = slice(max(0, first - start), rows - start)
        return batch[wanted], logit[wanted]

    with ThreadPoolExecutor(workers) as pool:
        for start in range(first // CHUNK_ROWS * CHUNK_ROWS, rows, CHUNK_ROWS):
            waiting.append((start, pool.submit(planted.chunk, start // CHUNK_ROWS)))
            if len(waiting) == workers + AHEAD:
                yield next_of_them()
        while waiting:
            yield next_of_them()


def key_of(dataset: SyntheticDataset) -> str:
    """What rows depend on: a build that was interrupted goes on only if this is the same."""
    return hash_of([GENERATOR, dataset.model_dump(mode="json")])


def write_synthetic(dataset: SyntheticDataset, writer: StoreWriter, workers: int) -> dict[str, Any]:
    """Write the training rows and then the evaluation rows, or those that an interrupted build hasn't written yet.

    Returns:
        Facts for the manifest: the best reachable quality on the evaluation rows, and what the head rows are like.

    Raises:
        DataError: the settings ask for a click model that doesn't exist.
    """
    planted, rows = plant(dataset), dataset.train_samples + dataset.eval_samples
    for number, (batch, _) in enumerate(generate(planted, rows, writer.rows, workers), start=1):
        writer.append(batch)
        if number % CHECKPOINT_CHUNKS == 0 and writer.rows < rows:
            writer.checkpoint({})
    return {"optimum": optimum_of(planted, workers), "heads": head_rows(planted)}


def optimum_of(planted: Planted, workers: int) -> Optimum | None:
    """The best reachable quality on the evaluation rows, which are made once more for it.

    It is the quality of the true click probabilities on the labels that were drawn from them, normalised by the entropy of the
    evaluation rows' own click rate: what a model that knew the truth would score, not an expectation over other labels.
    None where it is not defined, because the evaluation rows hold only clicks or none.
    """
    dataset, truth = planted.dataset, TruthQuality()
    rows = dataset.train_samples + dataset.eval_samples
    for batch, logit in generate(planted, rows, dataset.train_samples, workers):
        truth.add(logit, batch.labels)
    return truth.result()
