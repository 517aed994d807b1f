"""Functions that tests run on ranks."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from meshrec.mesh.groups import MeshPool
from meshrec.mesh.layout import MeshLayout


def sum_of_ranks(add: int) -> tuple[int, int]:
    total = torch.tensor(dist.get_rank() + add)
    dist.all_reduce(total)
    return dist.get_rank(), int(total)


def pids() -> int:
    return os.getpid()


def fail_on(rank: int) -> None:
    if dist.get_rank() == rank:
        raise ValueError("planted")
    dist.barrier()


def die(rank: int) -> None:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def hang(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(1000)


def sleep_for(seconds: Any) -> None:
    time.sleep(seconds)


def write_pid_and_sleep(folder: Path) -> None:
    (folder / f"{os.getpid()}.pid").touch()
    time.sleep(1000)


def ask_for_a_wrong_mesh_then_a_right_one() -> dict[str, Any]:
    """Layouts for other numbers of ranks are refused; afterwards the ranks still make a mesh and add up over its twins."""
    pool = MeshPool(torch.device("cpu"), timedelta(seconds=20))
    refusals = []
    for ranks, replicas in ((4, 2), (4, 1), (1, 1)):
        try:
            pool.mesh(MeshLayout(ranks, replicas))
        except ValueError as error:
            refusals.append(str(error))
        else:
            refusals.append(f"a mesh of {ranks} ranks was made")
    mesh = pool.mesh(MeshLayout(2, 2))
    total = torch.tensor(10 + dist.get_rank())
    dist.all_reduce(total, group=mesh.replica_group)
    return {
        "refusals": refusals,
        "total": int(total),
        "place": (mesh.rank, mesh.replica, mesh.shard),
        "sizes": [mesh.size(dimension) for dimension in ("shard", "replicate", "world")],
        "same mesh when asked again": pool.mesh(MeshLayout(2, 2)) is mesh,
    }
