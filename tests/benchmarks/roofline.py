"""How near meshrec's single-rank step comes to what one thread of this machine can do.

    python tests/benchmarks/roofline.py [--kernel fbgemm] [--repeats 9] [--steps 20] [--batch 2048]

Every repeat measures the rate of a matrix product, the rate of a copy, and some steps, one after the other, so that all three
see the same machine. The floor of a step is the sum over its phases of max(flop / product rate, bytes / copy rate): on one
thread phases don't overlap. Needs no TorchRec.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, pairwise

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from results_file import write
from spread import spread
from workload import DENSE, TABLES, Workload

from meshrec.measure.environment import environment
from meshrec.mesh.device import device_of
from meshrec.mesh.launch import launch

FLOAT = 4
"""Bytes of a number, and of an id."""
SIDE = 1024
"""Rows and columns of the product's matrices: 4 MiB each, far from any limit but arithmetic."""
COPIED = 2**26
"""Numbers copied: 256 MiB, past every cache."""
BATCHES = 40


@dataclass(frozen=True)
class Work:
    """What a phase has to do at least."""

    flop: float
    bytes: float

    def seconds(self, flop_rate: float, byte_rate: float) -> float:
        """Least time at these rates, flop/s and bytes/s."""
        return max(self.flop / flop_rate, self.bytes / byte_rate)


def least_work(workload: Workload, distinct: float) -> dict[str, Work]:
    """Work of one step's phases at T = 1.

    Args:
        workload: b samples, F = 26 tables of D columns, one id each.
        distinct: U, distinct (table, row) pairs of a batch.

    The formulas are those of the functions below. Activations are counted as read or written once by each layer that touches
    them: layers aren't fused.
    """
    return {
        "lookup": lookup(workload, distinct),
        "interaction": interaction(workload),
        "mlp": mlps(workload),
        "update": update(workload, distinct),
        "dense_update": dense_update(workload),
    }


def lookup(workload: Workload, distinct: float) -> Work:
    """No flop with one id a bag. Bytes: ids b·F·4, distinct rows U·D·4 (repeats are in the cache), pooled b·F·D·4."""
    vectors = workload.batch * TABLES
    return Work(0, FLOAT * (vectors + distinct * workload.dim + vectors * workload.dim))


def interaction(workload: Workload) -> Work:
    """P = V(V−1)/2 pairs of V = F + 1 vectors. Flop: 2·b·P·D forward, twice that backward (a pair gives to both its vectors).

    Bytes: vectors b·V·D·4 read forward and backward, their gradients written; products b·P·4 written, their gradients read.
    """
    count = TABLES + 1
    pairs = count * (count - 1) / 2
    flop = 6 * workload.batch * pairs * workload.dim
    return Work(flop, FLOAT * workload.batch * (3 * count * workload.dim + 2 * pairs))


def mlps(workload: Workload) -> Work:
    """Layers of n inputs and m outputs. Flop: 2·b·n·m each for outputs, weight gradients, (but in the first) input gradients.

    Bytes: inputs b·n·4 read forward and backward, outputs b·m·4 written, output gradients b·m·4 read, input gradients b·n·4
    written, and n·m·4 for weights read twice and their gradients written once.
    """
    flop = bytes_ = 0.0
    for index, (n, m) in enumerate(layers(workload)):
        products = 2 if index == 0 else 3
        flop += products * 2 * workload.batch * n * m
        bytes_ += FLOAT * (workload.batch * (products * n + 2 * m) + 3 * n * m)
    return Work(flop, bytes_)


def update(workload: Workload, distinct: float) -> Work:
    """Flop: b·F·D to add gradients of equal rows, 5·U·D for mean square, scale and step. Bytes: gradients b·F·D·4 read,
    ids b·F·4 read, U rows of D weights and one moment (row-wise AdaGrad) read and written."""
    vectors = workload.batch * TABLES
    state = workload.dim + (workload.optimizer != "sgd")
    return Work(
        vectors * workload.dim + 5 * distinct * workload.dim,
        FLOAT * (vectors * (workload.dim + 1) + 2 * distinct * state),
    )


def dense_update(workload: Workload) -> Work:
    """SGD on P dense parameters: 2·P flop; gradients read, parameters read and written: 3·P·4 bytes."""
    parameters = sum((n + 1) * m for n, m in layers(workload))
    return Work(2 * parameters, 3 * FLOAT * parameters)


def layers(workload: Workload) -> list[tuple[int, int]]:
    """(inputs, outputs) of all linear layers; the first one is the bottom MLP's."""
    count = TABLES + 1
    bottom = [DENSE, *workload.bottom]
    top = [workload.dim + count * (count - 1) // 2, *workload.top]
    return [*pairwise(bottom), *pairwise(top)]


@dataclass(frozen=True)
class Repeat:
    """One repeat's three measurements."""

    flop_rate: float
    byte_rate: float
    step_seconds: float


def measure(workload: Workload, repeats: int, steps: int) -> tuple[list[Repeat], float]:
    """Repeats, and U, on one rank with one thread."""
    from mesh_side import MeshSide

    side = MeshSide(workload, device_of(dist.get_rank(), 1))
    batches = workload.rank_batches(BATCHES, 0)
    served = cycle(batches)
    left, right = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    product = torch.empty(SIDE, SIDE)
    source, copy = torch.ones(COPIED), torch.zeros(COPIED)

    def one_repeat() -> Repeat:
        multiplied = _seconds(lambda: torch.mm(left, right, out=product), 10)
        copied = _seconds(lambda: copy.copy_(source), 3)
        stepped = _seconds(lambda: side.step(next(served)), steps)
        return Repeat(2 * SIDE**3 / multiplied, 2 * FLOAT * COPIED / copied, stepped)

    one_repeat()  # the first one warms up
    return [one_repeat() for _ in range(repeats)], float(np.mean([_distinct(batch.sparse) for batch in batches]))


def _distinct(ids: NDArray[np.int32]) -> int:
    return sum(np.unique(column).size for column in ids.T)


def _seconds(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def main() -> None:
    """Measure, print and write the raw numbers."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kernel", default="fbgemm", help="meshrec's training.kernel")
    options.add_argument("--repeats", type=int, default=9)
    options.add_argument("--steps", type=int, default=20, help="steps in a repeat")
    options.add_argument("--batch", type=int, default=2048)
    chosen = options.parse_args()
    workload = Workload(1, kernel=chosen.kernel, batch=chosen.batch)
    repeats, distinct = launch(measure, 1, workload, chosen.repeats, chosen.steps, timeout=1800)[0]
    work = least_work(workload, distinct)
    floors = [{name: part.seconds(r.flop_rate, r.byte_rate) for name, part in work.items()} for r in repeats]
    report(work, floors, repeats)
    numbers = {
        "settings": vars(chosen),
        "environment": environment(),
        "distinct_rows": distinct,
        "work": {name: vars(part) for name, part in work.items()},
        "repeats": [vars(repeat) | {"floor_seconds": floor} for repeat, floor in zip(repeats, floors, strict=True)],
    }
    print(f"raw numbers in {write(f'roofline-{chosen.kernel}-{chosen.batch}', numbers)}")


def report(work: dict[str, Work], floors: list[dict[str, float]], repeats: list[Repeat]) -> None:
    """Print rates, floors by phase and the fraction reached: medians, with smallest and largest repeat."""
    print(f"matrix product  {spread([r.flop_rate / 1e9 for r in repeats], '.1f')} GFLOP/s, one thread")
    print(f"copy            {spread([r.byte_rate / 1e9 for r in repeats], '.1f')} GB/s read and written, one thread")
    for name, part in work.items():
        floor = spread([1e3 * by_phase[name] for by_phase in floors], ".2f")
        print(f"{name:<14}  {part.flop / 1e9:.3f} GFLOP, {part.bytes / 1e6:.1f} MB: at least {floor} ms")
    print(f"step            {spread([1e3 * r.step_seconds for r in repeats], '.1f')} ms")
    fractions = [sum(floor.values()) / repeat.step_seconds for floor, repeat in zip(floors, repeats, strict=True)]
    print(f"of the roofline {spread([100 * fraction for fraction in fractions], '.0f')} %")


if __name__ == "__main__":
    main()
