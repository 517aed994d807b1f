"""Shuffled batches from a memory-mapped store, samples a second on one thread, beside PyTorch's own loader in turns.

    python tests/benchmarks/data/batches_speed.py [--rows N] [--batch N] [--repeats N] [--trainer SAMPLES_PER_SECOND]

Three loaders serve one pass over the same rows in turns: `RankBatches` with a permutation of the whole set, `RankBatches` with
the order of sets that are too large for one (`BlockShuffle`), and `DataLoader` over a `TensorDataset` of arrays in memory.
All of them include the digest of the order or their own bookkeeping, and make a copy of every row. The rows are generated and,
at the default number, fit into memory: a disk is not measured here.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]  # other benchmarks' helpers

WANTED_RATIO = 20.0


def make_store(folder: Path, rows: int) -> Path:
    """A store of rows whose values don't matter."""
    from meshrec.data.columns import Rows
    from meshrec.data.writer import StoreWriter

    rng = np.random.default_rng(0)
    with StoreWriter(folder / "store") as writer:
        for start in range(0, rows + 1, 100_000):
            number = min(100_000, rows + 1 - start)
            labels, dense = rng.integers(0, 2, number).astype(np.float32), rng.random((number, 13), np.float32)
            writer.append(Rows(labels, dense, rng.integers(0, 20_000, (number, 26), np.int32)))
        writer.finish(rows, kind="synthetic", name="synthetic", settings={}, table_rows=[20_000] * 26)
    return folder / "store"


def loaders(store: Path, batch: int) -> dict[str, Callable[[], Iterable[object]]]:
    """Name → what starts a pass."""
    from meshrec.data.batches import RankBatches
    from meshrec.data.order import BlockShuffle, sample_order
    from meshrec.data.store import open_store

    split = open_store(store).train
    samples = len(split) // batch * batch
    tensors = TensorDataset(*(torch.from_numpy(np.array(part)) for part in (split.dense, split.sparse, split.labels)))
    return {
        "permutation": lambda: RankBatches(split, sample_order(len(split), 0)[:samples], batch, 0, 1),
        "block shuffle": lambda: RankBatches(split, BlockShuffle(len(split), 0)[:samples], batch, 0, 1),
        "DataLoader": lambda: DataLoader(tensors, batch, shuffle=True, drop_last=True),
    }


def rate(start: Callable[[], Iterable[object]], batch: int, most: int) -> float:
    """Samples a second over one pass, or its first batches; drawing the order is part of it."""
    begun, served = time.perf_counter(), 0
    for _ in start():
        served += 1
        if served == most:
            break
    return served * batch / (time.perf_counter() - begun)


def main() -> None:
    """Print the rates of the three loaders; the raw numbers go to a file."""
    from results_file import write
    from spread import spread

    from meshrec.measure.environment import environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--trainer", type=float, default=80_000, help="samples/s of the trainer, to compare with")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        sides = loaders(make_store(Path(name), options.rows), options.batch)
        most = {"permutation": options.rows, "block shuffle": options.rows, "DataLoader": 100}
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(options.repeats + 1):  # the first one warms up
            for side, start in sides.items():
                found = rate(start, options.batch, most[side])
                rates[side] += [found] if turn else []
    for side, values in rates.items():
        print(
            f"{side:14} {spread(values, ',.0f')} samples/s = {spread([v / options.trainer for v in values], '.1f')} × trainer"
        )
    numbers = {"options": vars(options), "samples_per_second": rates, "environment": environment()}
    print(f"want at least {WANTED_RATIO:g} × the trainer; raw numbers in {write('batches_speed', numbers)}")


if __name__ == "__main__":
    main()
