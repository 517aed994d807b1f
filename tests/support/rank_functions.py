"""Functions that tests run on ranks."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from meshrec.measure.ledger import Ledger
from meshrec.mesh.collectives import Collectives
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


def use_every_collective() -> dict[str, Any]:
    """What each collective of a 2 × 2 mesh gave this rank, and what the ledger counted."""
    pool = MeshPool(torch.device("cpu"), timedelta(seconds=20))
    mesh = pool.mesh(MeshLayout(4, 2))
    collectives, rank = Collectives(mesh, Ledger()), mesh.rank
    sends = [[1, 3], [2, 4]]
    outgoing = 100 * rank + torch.arange(sum(sends[mesh.shard]))
    receives = [send[mesh.shard] for send in sends]
    found: dict[str, Any] = {
        "all_to_all": collectives.all_to_all("exchange", outgoing.int(), sends[mesh.shard], receives).tolist()
    }
    for dimension in ("shard", "replicate", "world"):
        numbers = torch.full((5,), float(rank))
        collectives.all_reduce_sum(f"sum over {dimension}", numbers, dimension)
        found[dimension] = numbers.tolist()
    pair = torch.full((2,), float(rank))
    found["gathered"] = collectives.all_gather("gather", pair, "replicate").tolist()
    into, half = torch.empty(4), torch.empty(2)
    collectives.all_gather_into("gather", into, pair, "replicate")
    collectives.reduce_scatter_sum("scatter", half, rank + torch.arange(4.0), "replicate")
    with collectives.ledger.closed():
        pending = collectives.start_all_reduce_sum("unseen", torch.full((3,), float(rank)), "world")
        pending.wait()
        found["waited twice"] = pending.wait().tolist()
    found |= {"gathered into": into.tolist(), "scattered": half.tolist(), "ledger": collectives.ledger.entries}
    return found | _alone(Collectives(pool.mesh(MeshLayout(4, 4)), Ledger()))


def _alone(collectives: Collectives) -> dict[str, Any]:
    """What collectives over a group of one give."""
    numbers, into, own = torch.arange(4.0), torch.empty(4), torch.empty(4)
    exchanged = collectives.all_to_all("exchange", numbers, [4], [4], "shard")
    collectives.all_reduce_sum("sum", numbers, "shard")
    gathered = collectives.all_gather("gather", numbers, "shard")
    collectives.all_gather_into("gather", into, numbers, "shard")
    collectives.reduce_scatter_sum("scatter", own, numbers, "shard")
    tensors = [exchanged, numbers, gathered, into, own]
    return {"alone": [tensor.tolist() for tensor in tensors], "sent alone": collectives.ledger.entries}
