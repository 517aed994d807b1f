"""How large an experiment is: bytes on disk and in memory, from its settings and the table of data sets."""

from collections.abc import Sequence
from pathlib import Path

from meshrec.data.columns import DataError
from meshrec.data.fetch.sources import Source
from meshrec.data.source import expand_path
from meshrec.embeddings.optimizers import row_optimizer
from meshrec.experiment.cells import Block, Cell, blocks
from meshrec.experiment.datasets import VocabularyCategories
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES, CriteoDataset, Dataset, Experiment, SyntheticDataset
from meshrec.train.setup import processes

ROW_BYTES = 4 * (1 + DENSE_FEATURES + CATEGORICAL_FEATURES)
"""A row of a store: label, integers and table rows, 4 bytes each."""
SCRATCH_ROW_BYTES = 4 * CATEGORICAL_FEATURES + 8
"""Beside it until the vocabularies are known."""
TEXT_ROW_BYTES = {".gz": 72, ".zst": 60, ".parquet": 60}
"""Least bytes that a row takes in a file: measured on gzip (72 of Terabyte, 88 of Kaggle), guessed low for the others."""
PLAIN_ROW_BYTES = 200
"""Measured: 230 to 250."""
RECORD_BYTES = 100_000
"""A run's share of records, tables and figures, generously."""
CHECKPOINT_HEAD_BYTES = 200_000
"""Of a checkpoint's files, generously: 130 kB at 2 ranks and 26 tables."""
PROCESS_BYTES = 1_500_000_000
"""A rank's libraries, batches and buffers, as the Slurm jobs ask for."""
COPIES = 2
"""Of the tables while they are drawn, saved or averaged, as the Slurm jobs ask for."""


def table_bytes(cell: Cell) -> int:
    """Weights and optimizer state of all tables, once: rows · (dim + state) · 4."""
    rows, dims = cell.experiment.dataset.rows_of_tables, cell.experiment.model.dims_of_tables
    widths = row_optimizer(cell.optimizer_level, cell.layout_level.sync_moments == "lagged").state_widths().values()
    return sum(4 * count * (dim + sum(width or dim for width in widths)) for count, dim in zip(rows, dims, strict=True))


def held_bytes(cell: Cell) -> int:
    """Tables over all ranks: once for each replica, unless twins share what they store."""
    layout = cell.layout_level
    return table_bytes(cell) * (1 if layout.replica_storage == "sharded" else layout.replicas)


def block_memory(block: Block) -> int:
    """Host memory of a block on CPUs: its processes, and the largest cell's tables with a copy."""
    ranks = max(processes(cell) for cell in block.cells)
    return ranks * PROCESS_BYTES + COPIES * max(held_bytes(cell) for cell in block.cells)


def device_memory(block: Block) -> int:
    """Memory of one GPU: an even share of the largest cell's tables with a copy."""
    return max(COPIES * held_bytes(cell) // processes(cell) for cell in block.cells)


def checkpoint_bytes(experiment: Experiment) -> int:
    """Most that checkpoints take when one block runs at a time: the cell's last one while the next is written, and all kept."""
    training = experiment.training
    if training.checkpoint_every is None:
        return 0
    sizes = [_checkpoint(cell) for block in blocks(experiment) for cell in block.cells]
    return max(sizes) + (sum(sizes) if training.keep_checkpoints else max(sizes))


def _checkpoint(cell: Cell) -> int:
    """Tables, dense parameters and their state, and the files' own heads. Twins are saved one by one where they may differ."""
    layout, every = cell.layout_level, cell.experiment.training.checkpoint_every or 1
    between_averages = every % layout.sync_every != 0 or layout.sync_moments != "averaged"
    differ = layout.replicas > 1 and layout.sync == "weights" and between_averages
    return table_bytes(cell) * (layout.replicas if differ else 1) + dense_bytes(cell.experiment) + CHECKPOINT_HEAD_BYTES


def dense_bytes(experiment: Experiment) -> int:
    """Dense parameters and what their optimizer keeps for each."""
    import torch

    from meshrec.models import make_model

    with torch.device("meta"):  # shapes alone
        parameters = sum(parameter.numel() for parameter in make_model(experiment.model).parameters())
    return 4 * parameters * (2 if experiment.training.dense_optimizer.kind == "adagrad" else 1)


def record_bytes(experiment: Experiment) -> int:
    """Records, tables and figures of all runs."""
    return RECORD_BYTES * sum(len(block.cells) for block in blocks(experiment))


def rows(dataset: Dataset, source: Source | None) -> int | None:
    """Rows of a data set: known for generated ones, at most so many for files, by the table where there is no file yet."""
    if isinstance(dataset, SyntheticDataset):
        return dataset.train_samples + dataset.eval_samples
    sizes = [_file_rows(path) for path in _paths(dataset)]
    if sizes and None not in sizes:
        return sum(size for size in sizes if size is not None)
    if source is None or source.rows is None:
        return None
    return source.rows * min(len(dataset.files), len(source.files)) // len(source.files)


def training_rows(dataset: Dataset, number: int) -> int:
    """Of all rows those that are trained on, at most."""
    if isinstance(dataset, SyntheticDataset):
        return dataset.train_samples
    return round(number * (1 - (dataset.eval_fraction or 0)))


def _paths(dataset: CriteoDataset) -> list[Path]:
    try:
        return [expand_path(file) for file in dataset.files]
    except DataError:
        return []


def _file_rows(path: Path) -> int | None:
    return path.stat().st_size // TEXT_ROW_BYTES.get(path.suffix, PLAIN_ROW_BYTES) if path.is_file() else None


def store_bytes(dataset: Dataset, number: int) -> int:
    """Space that preparing so many rows takes at its most."""
    vocabulary = isinstance(dataset, CriteoDataset) and isinstance(dataset.categories, VocabularyCategories)
    return number * (ROW_BYTES + SCRATCH_ROW_BYTES * vocabulary)


def raw_bytes(source: Source) -> int:
    """Downloads of a data set and what is unpacked of them, as far as the table knows their lengths."""
    return sum((file.planned_bytes or 0) + (file.unpacked_bytes or 0) for file in source.files)


def source_of(dataset: Dataset, sources: Sequence[Source]) -> Source | None:
    """The public data set that an experiment's rows are of."""
    for source in sources:
        if isinstance(dataset, CriteoDataset) and source.experiment and source.experiment.variant == dataset.variant:
            return source
    return None


def most_processes(experiment: Experiment) -> int:
    """Processes of the largest block."""
    return max(processes(cell) for block in blocks(experiment) for cell in block.cells)
