"""Starts T ranks on this machine, watches them and leaves none behind.

Ranks are forked from a server process that has imported torch and fbgemm and done no tensor work, so that a start costs a fork
and not an import. Where the platform has no fork server, they are spawned.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

PRELOAD = ["meshrec.embeddings.kernels"]
"""Imports torch and fbgemm in the fork server."""

GRACE_SECONDS = 5.0
"""How long ranks may take to fail by themselves after one has failed, before they are killed."""


class RankError(RuntimeError):
    """A rank raised. The message holds the rank and its own traceback; `cause` is the last line of it."""

    def __init__(self, rank: int, cause: str, trace: str) -> None:
        super().__init__(f"rank {rank} failed: {cause}\n{trace}")
        self.rank = rank
        self.cause = cause


class RankDied(RuntimeError):
    """A rank's process ended without a word: killed by a signal, or out of memory."""


class LaunchTimeout(RuntimeError):
    """The ranks did not finish in time and were killed."""


@dataclass(frozen=True)
class _Rank:
    number: int
    process: BaseProcess
    pipe: Connection


def launch(function: Callable[..., Any], ranks: int, *args: Any, timeout: float, collective_timeout: float = 60.0) -> list[Any]:
    """Run `function(*args)` on T ranks with torch.distributed set up, and return what each returned.

    A script that calls this needs the usual `if __name__ == "__main__":`, since ranks import it.

    Args:
        function: importable by name; on a rank it sees `torch.distributed` initialised and one CPU thread.
        ranks: T.
        args: picklable arguments, the same on every rank.
        timeout: seconds after which all ranks are killed.
        collective_timeout: seconds that a rank waits inside a collective for the others.

    Raises:
        RankError: a rank raised: the first one, with its traceback.
        RankDied: a rank's process died.
        LaunchTimeout: time ran out.
    """
    with tempfile.TemporaryDirectory(prefix="meshrec-") as folder:
        rendezvous = f"file://{Path(folder) / 'rendezvous'}"
        started: list[_Rank] = []
        try:
            for number in range(ranks):
                started.append(_start(number, ranks, rendezvous, collective_timeout, function, args))
            return _collect(started, timeout)
        finally:
            _end(started)


def _start(
    number: int, ranks: int, rendezvous: str, collective_timeout: float, function: Callable[..., Any], args: tuple[Any, ...]
) -> _Rank:
    context = _context()
    here, there = context.Pipe(duplex=False)
    process = context.Process(
        target=_rank_main,
        args=(number, ranks, rendezvous, collective_timeout, there, function, args),
        name=f"rank {number}",
        daemon=True,
    )
    process.start()
    there.close()
    return _Rank(number, process, here)


def _context() -> Any:
    if "forkserver" in multiprocessing.get_all_start_methods() and sys.platform == "linux":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        return context
    return multiprocessing.get_context("spawn")


def _collect(started: list[_Rank], timeout: float) -> list[Any]:
    """Results by rank; or the first failure, once the other ranks had time to report theirs."""
    deadline = time.monotonic() + timeout
    open_pipes = {rank.pipe: rank for rank in started}
    results: dict[int, Any] = {}
    failures: list[tuple[float, Exception]] = []
    while open_pipes:
        ready = wait(list(open_pipes), timeout=max(0.0, deadline - time.monotonic()))
        if not ready and not failures:
            waiting = sorted(rank.number for rank in open_pipes.values())
            raise LaunchTimeout(f"ranks {waiting} did not finish within {timeout:.0f} s and were killed")
        if not ready:
            break
        for pipe in ready:
            assert isinstance(pipe, Connection)
            outcome = _outcome(open_pipes.pop(pipe))
            if isinstance(outcome, tuple):
                failures.append(outcome)
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            else:
                results[outcome.rank] = outcome.value
    if failures:
        raise min(failures, key=lambda failure: failure[0])[1]
    return [results[rank.number] for rank in started]


@dataclass(frozen=True)
class _Result:
    rank: int
    value: Any


def _outcome(rank: _Rank) -> "_Result | tuple[float, Exception]":
    """What a rank sent, or how its process ended; failures carry the time at which they happened."""
    try:
        kind, *content = rank.pipe.recv()
    except (EOFError, OSError):
        rank.process.join(GRACE_SECONDS)
        return 0.0, RankDied(f"rank {rank.number} died {_how(rank.process.exitcode)}")
    if kind == "failed":
        moment, cause, trace = content
        return moment, RankError(rank.number, cause, trace)
    return _Result(rank.number, content[0])


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-exit_code).name}; was it killed, or out of memory?"
    return f"with exit code {exit_code}"


def _end(started: list[_Rank]) -> None:
    for rank in started:
        rank.process.join(0 if rank.process.exitcode is not None else 1.0)
        if rank.process.is_alive():
            rank.process.kill()
            rank.process.join()
        rank.pipe.close()


def _rank_main(
    rank: int,
    ranks: int,
    rendezvous: str,
    collective_timeout: float,
    pipe: Connection,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    _die_with_launcher()
    import torch
    import torch.distributed as dist

    from meshrec.measure.allocator import keep_freed_memory
    from meshrec.mesh.device import backend_of, device_of

    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        device = device_of(rank, ranks)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend_of(device),
            init_method=rendezvous,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=collective_timeout),
        )
        value = function(*args)
        dist.barrier()
        dist.destroy_process_group()
        pipe.send(("ok", value))
    except BaseException as error:
        cause = "".join(traceback.format_exception_only(error)).strip()
        pipe.send(("failed", time.time(), cause, traceback.format_exc()))
        pipe.close()
        os._exit(1)  # no clean-up that could wait for other ranks
    pipe.close()


def _die_with_launcher() -> None:
    """Be killed as soon as the launcher is gone, however it ended. A thread waits for that; collectives don't hold it up."""
    launcher = multiprocessing.parent_process()
    assert launcher is not None
    sentinel = launcher.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
