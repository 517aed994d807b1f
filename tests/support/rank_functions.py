"""Functions that tests run on ranks."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


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
