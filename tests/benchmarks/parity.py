"""Both sides trained from the same weights on the same data: how far apart do losses and tables end?

    python tests/benchmarks/parity.py CASES.json

The file holds a list of {"workload": {...}, "steps": n, "fault": null or one of `MeshSide.spoil`}; all of one rank count and in
one launch. Prints a JSON list of {"loss", "tables", "moved"} in the same order: largest absolute differences between the sides,
and how far the tables are from their initial weights. Runs in TorchRec's environment; 2D on a CPU needs `python -O`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from workload import Workload

from meshrec.mesh.device import device_of
from meshrec.mesh.launch import launch


def compare(cases: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Largest differences of each case over all ranks."""
    ranks = cases[0]["workload"]["ranks"]
    by_rank = launch(_on_rank, ranks, cases, timeout=240, collective_timeout=60)
    return [{key: max(part[index][key] for part in by_rank) for key in by_rank[0][index]} for index in range(len(cases))]


def _on_rank(cases: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [_differences(Workload(**case["workload"]), case["steps"], case["fault"]) for case in cases]


def _differences(workload: Workload, steps: int, fault: str | None) -> dict[str, float]:
    from mesh_side import MeshSide
    from torchrec_side import TorchRecSide

    device = device_of(dist.get_rank(), workload.ranks)
    ours = MeshSide(workload, device)
    theirs = TorchRecSide(workload, device, ours.owners(), ours.initial_dense)
    if fault:
        ours.spoil(fault)
    batches = workload.rank_batches(steps, dist.get_rank())
    mine = np.array([float(ours.step(batch)) for batch in batches])
    other = _global_means(torch.stack([theirs.step(batch) for batch in batches]))
    tables, peers = ours.tables(), theirs.tables()
    assert_same_tables(tables, peers)
    initial = {table: workload.initial_rows(table, 0, workload.rows).numpy() for table in peers}
    return {"loss": float(np.abs(mine - other).max()), "tables": _largest(tables, peers), "moved": _largest(initial, peers)}


def assert_same_tables(ours: dict[int, Any], theirs: dict[int, Any]) -> None:
    """Both sides must hold the same tables here. No `assert`: this runs under `python -O`."""
    if not ours or set(ours) != set(theirs):
        raise ValueError(f"meshrec holds tables {sorted(ours)} on this rank, TorchRec {sorted(theirs)}: want the same")


def _global_means(losses: torch.Tensor) -> np.ndarray[Any, Any]:
    """From every rank's mean losses [steps] those over all ranks."""
    dist.all_reduce(losses)
    return (losses / dist.get_world_size()).cpu().numpy()


def _largest(ours: dict[int, Any], theirs: dict[int, Any]) -> float:
    return max(float(np.abs(ours[table] - theirs[table]).max()) for table in theirs)


if __name__ == "__main__":
    print(json.dumps(compare(json.loads(Path(sys.argv[1]).read_text()))))
