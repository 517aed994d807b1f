"""Two trainers in the same ranks, timed in turns: A/B/A/B. Whatever slows the machine for a while slows both."""

import time
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from spread import spread
from workload import Workload

from meshrec.measure.environment import environment
from meshrec.mesh.device import device_of, synchronise
from meshrec.mesh.launch import launch

DISTINCT_BATCHES = 40
"""Batches made beforehand; longer runs take them again."""
WARMUP_STEPS = 10


@dataclass(frozen=True)
class Timing:
    """Samples a second of both sides in each repeat, at one number of ranks."""

    ranks: int
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """meshrec / TorchRec of each pair of neighbouring repeats."""
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    def line(self) -> str:
        """Medians, with the smallest and the largest repeat."""
        ours, theirs, ratio = spread(self.ours, ".0f"), spread(self.theirs, ".0f"), spread(self.ratios, ".2f")
        return f"{self.ranks:>5}  {ours:>24}  {theirs:>24}  {ratio:>18}"


HEADER = f"ranks  {'meshrec, samples/s':>24}  {'TorchRec, samples/s':>24}  {'ratio':>18}"


def compare(workload: Workload, dense: str, repeats: int, steps: int) -> Timing:
    """Start the ranks and time both sides.

    Args:
        workload: what both train.
        dense: `same` module on both sides, or TorchRec's own (`torchrec`) on its side.
        repeats: timed turns of each side.
        steps: steps in a turn.
    """
    parts = launch(_take_turns, workload.ranks, workload, dense, repeats, steps, timeout=1800)
    seconds = np.max(parts, axis=0)  # [repeats, 2]: a turn ends when its last rank does
    samples = workload.batch * steps
    return Timing(workload.ranks, *((samples / seconds[:, side]).tolist() for side in range(2)))


def _take_turns(workload: Workload, dense: str, repeats: int, steps: int) -> list[list[float]]:
    """Seconds [repeats][2] of each turn on this rank."""
    from mesh_side import MeshSide
    from torchrec_side import TorchRecDense, TorchRecSide

    device = device_of(dist.get_rank(), workload.ranks)
    ours = MeshSide(workload, device)
    theirs = ours.initial_dense if dense == "same" else TorchRecDense(workload)
    sides = [ours, TorchRecSide(workload, device, ours.owners(), theirs)]
    batches = workload.rank_batches(DISTINCT_BATCHES, dist.get_rank())
    served = [cycle(batches), cycle(batches)]
    seconds = []
    for turn in range(repeats + 1):
        count = steps if turn else WARMUP_STEPS
        seconds.append([_turn(side, list(islice(of_side, count)), device) for side, of_side in zip(sides, served, strict=True)])
    return seconds[1:]


def _turn(side: Any, batches: list[Any], device: torch.device) -> float:
    dist.barrier()
    start = time.perf_counter()
    side.train(batches)
    synchronise(device)
    return time.perf_counter() - start


def raw_numbers(workloads: list[Workload], timings: list[Timing], settings: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, and on what."""
    found = environment()
    return {
        "settings": settings,
        "environment": found | {"packages": found["packages"] | {"torchrec": _torchrec()}},
        "timings": [
            {"workload": asdict(workload), **asdict(timing), "ratios": timing.ratios}
            for workload, timing in zip(workloads, timings, strict=True)
        ],
    }


def _torchrec() -> str:
    from importlib.metadata import version

    return version("torchrec")
