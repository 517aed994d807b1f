"""When averaging touched rows beats averaging whole shards: both ways in turns, over the share of rows that a step touches.

Two twins on two ranks, M = 2, K = 1; prints milliseconds of `touched` and `whole` and their ratio at each share. The share at
which the ratio crosses 1 is what `sync_rows: auto` should switch at.
"""

import argparse
import time
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from meshrec.embeddings.local import RankTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShape, table_wise
from meshrec.embeddings.replicate import ReplicaAverage
from meshrec.experiment.schema import Layout
from meshrec.measure.ledger import Ledger
from meshrec.mesh.collectives import Collectives
from meshrec.mesh.device import device_of
from meshrec.mesh.groups import MeshPool
from meshrec.mesh.launch import launch
from meshrec.mesh.layout import MeshLayout

SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class Times:
    """Milliseconds of each repeat, the slowest rank's."""

    touched: list[float]
    whole: list[float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows on a rank")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    ranks = launch(measure, 2, options.rows, options.dim, options.repeats, timeout=600)
    print(f"{options.rows} rows × {options.dim}, two twins, {options.repeats} repeats: median (smallest–largest)")
    for share, *of_ranks in zip(SHARES, *ranks, strict=True):
        touched = np.max([times.touched for times in of_ranks], axis=0)
        whole = np.max([times.whole for times in of_ranks], axis=0)
        shares = f"{share:4.2f} of the rows a twin, {2 * share - share**2:4.2f} together"
        print(f"{shares}: touched {spread(touched)} ms, whole {spread(whole)} ms, ratio {spread(touched / whole)}")


def spread(values: np.ndarray) -> str:
    """Median with extremes."""
    return f"{np.median(values):.2f} ({values.min():.2f}–{values.max():.2f})"


def measure(rows: int, dim: int, repeats: int) -> list[Times]:
    """Times of both ways on this rank, in turns."""
    mesh = MeshPool(device_of(dist.get_rank(), 2), timedelta(seconds=60)).mesh(MeshLayout(2, 2))
    collectives = Collectives(mesh, Ledger())
    tables = RankTables(
        list(table_wise([TableShape(rows, dim)], 1).shards), RowOptimizer("rowwise_adagrad", 0.1), "torch", mesh.device
    )
    tables.kernels[0].weights().zero_()
    ways = [ReplicaAverage([tables], Layout(replicas=2, sync_rows=way), collectives) for way in ("touched", "whole")]
    found = []
    for share in SHARES:
        times: tuple[list[float], list[float]] = [], []
        for repeat in range(repeats + 1):
            touched = torch.randperm(rows)[: max(1, int(share * rows))].sort().values
            for way, taken in zip(ways, times, strict=True):
                dist.barrier()
                start = time.perf_counter()
                way.touch(repeat + 1, [touched] if way.lists_rows else [], touched.numel())
                way.average(way.announce(repeat + 1), repeat + 1)
                taken.append(1000 * (time.perf_counter() - start))
        found.append(Times(times[0][1:], times[1][1:]))
    return found


if __name__ == "__main__":
    main()
