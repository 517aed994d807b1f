"""Lookup and update of one rank's tables by fbgemm, numba and torch, in turns in one process.

`python tests/benchmarks/kernels.py [--dims 16 64] [--batches 512 2048 8192] [--repeats 9]`

26 tables of 1e5 rows, one id a bag, Zipf 1.05, row-wise AdaGrad. Times are CPU time of the one thread that computes: another
process that takes the core doesn't count, the caches and the memory that it takes away do. Each kernel has its own tables, so
that what one leaves in the caches doesn't serve the next.
"""

import argparse
import time
from typing import Any

import torch
from results_file import write
from spread import spread
from workload import TABLES, Workload

from meshrec.embeddings.kernels import ShardTables, make_tables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShard
from meshrec.experiment.schema import Kernel
from meshrec.measure.environment import environment

KERNELS: tuple[Kernel, ...] = ("fbgemm", "numba", "torch")
BATCHES = 4
WARMUP = 3

Times = dict[str, dict[str, list[float]]]
"""[kernel][lookup or update] milliseconds of each repeat."""


def measure(dim: int, batch: int, rows: int, repeats: int) -> Times:
    """Time all kernels in turns, each repeat with the next of a few batches."""
    workload = Workload(1, dim=dim, batch=batch, rows=rows)
    tables = {kernel: _tables(kernel, workload) for kernel in KERNELS}
    batches = [torch.from_numpy(part.sparse.T.copy()) for part in workload.rank_batches(BATCHES, 0)]
    gradients = 1e-3 * torch.randn(batch, TABLES * dim)
    times: Times = {kernel: {"lookup": [], "update": []} for kernel in KERNELS}
    for turn in range(WARMUP + repeats):
        for kernel in KERNELS:
            took = _turn(tables[kernel], batches[turn % BATCHES], gradients)
            for part, milliseconds in zip(times[kernel].values(), took, strict=True):
                part += [milliseconds] * (turn >= WARMUP)
    return times


def _tables(kernel: Kernel, workload: Workload) -> ShardTables:
    shards = [TableShard(0, t, 0, workload.rows, 0, workload.dim, workload.rows, workload.dim) for t in range(TABLES)]
    tables = make_tables(kernel, shards, RowOptimizer("rowwise_adagrad", 0.02, 1e-8), torch.device("cpu"))
    tables.weights().copy_(torch.cat([workload.initial_rows(table, 0, workload.rows) for table in range(TABLES)]))
    return tables


def _turn(tables: ShardTables, ids: torch.Tensor, gradients: torch.Tensor) -> tuple[float, float]:
    start = time.thread_time()
    tables.lookup(ids)
    between = time.thread_time()
    tables.update(ids, gradients)
    return 1e3 * (between - start), 1e3 * (time.thread_time() - between)


def report(dim: int, batch: int, times: Times) -> None:
    """Print medians with the smallest and the largest repeat, and how many times as fast as fbgemm numba is."""
    for part in ("lookup", "update"):
        by_kernel = "  ".join(f"{kernel} {spread(times[kernel][part], '.2f'):>20}" for kernel in KERNELS)
        ratios = [a / b for a, b in zip(times["fbgemm"][part], times["numba"][part], strict=True)]
        print(f"D {dim:>3}  batch {batch:>5}  {part}  ms: {by_kernel}  fbgemm/numba {spread(ratios, '.2f')}", flush=True)


def main() -> None:
    """Measure, print and write the raw numbers."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dims", type=int, nargs="+", default=[16, 64])
    options.add_argument("--batches", type=int, nargs="+", default=[512, 2048, 8192])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--repeats", type=int, default=9)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for dim in chosen.dims:
        for batch in chosen.batches:
            times = measure(dim, batch, chosen.rows, chosen.repeats)
            report(dim, batch, times)
            found.append({"dim": dim, "batch": batch, "milliseconds": times})
    print(f"raw numbers in {write('kernels', {'settings': vars(chosen), 'environment': environment(), 'timings': found})}")


if __name__ == "__main__":
    main()
