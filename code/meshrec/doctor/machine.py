"""Preflight of the machine, whatever is to be run on it."""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from meshrec.data.fetch.listing import size_text as size
from meshrec.doctor.finding import Finding, finding
from meshrec.doctor.limits import cores, free_bytes, memory_bytes
from meshrec.measure.versions import VersionError, check_kernels, check_versions
from meshrec.mesh.launch import LaunchTimeout, RankDied, RankError, launch

SHARED_MEMORY = Path("/dev/shm")
SHARED_BYTES_OF_RANK = 64 << 20
"""NCCL's buffers between two GPUs of a machine, generously."""
OPEN_FILES_OF_RANK = 64
OPEN_FILES_OF_PEER = 8
"""Sockets and pipes to another rank, over all process groups."""


def machine_findings(ranks: int) -> Iterator[Finding]:
    """Everything that doesn't depend on the experiment but for its largest number of ranks on this machine."""
    yield finding("Python", platform.python_version(), "3.11 or newer", sys.version_info >= (3, 11), "run ./reproduce setup")
    versions = version_finding()
    yield versions
    yield device_finding(ranks) if versions.verdict == "ok" else Finding("GPUs", "not looked for", f"0 or {ranks}", "note")
    yield core_finding(ranks, cores())
    yield open_file_finding(ranks, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield shared_memory_finding(ranks, SHARED_MEMORY)
    yield rendezvous_finding() if versions.verdict == "ok" else Finding("two ranks meet", "not tried", "yes", "note")
    yield slurm_finding(shutil.which)


def version_finding() -> Finding:
    """The torch/fbgemm pair, loaded."""
    wanted = "a torch and an fbgemm that go together"
    try:
        versions = check_versions()
        check_kernels(versions)
    except VersionError as error:
        return Finding("torch, fbgemm", "don't work", wanted, "fails", str(error))
    return Finding("torch, fbgemm", f"{versions.torch}, {versions.fbgemm} ({versions.fbgemm_distribution})", wanted, "ok")


def device_finding(ranks: int) -> Finding:
    """One GPU a rank, or none at all."""
    import torch

    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = f"{number} × {torch.cuda.get_device_name(0)}" if number else "none"
    advice = f"fewer GPUs than ranks: blocks of more than {number} ranks run on the CPU"
    return finding("GPUs", found, f"0 or {ranks}", number == 0 or number >= ranks, advice, "note")


def core_finding(ranks: int, number: int) -> Finding:
    """A core a rank: with fewer, what is computed stays right and speeds say little."""
    advice = "more ranks than cores: results are right, but speeds say little about the layout"
    return finding("cores", str(number), f"{ranks}, one a rank", number >= ranks, advice, "note")


def open_file_finding(ranks: int, limit: int) -> Finding:
    """File handles of one rank, whose peers each take some."""
    needed = OPEN_FILES_OF_RANK + OPEN_FILES_OF_PEER * ranks
    found = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    fits = limit == resource.RLIM_INFINITY or limit >= needed
    return finding("open files", found, str(needed), fits, f"raise the limit: ulimit -n {needed}")


def shared_memory_finding(ranks: int, folder: Path) -> Finding:
    """Shared memory, which NCCL passes data through between the GPUs of a machine."""
    needed = SHARED_BYTES_OF_RANK * ranks
    if not os.access(folder, os.W_OK):
        return Finding(
            str(folder), "can't be written to", size(needed), "note", "NCCL on several GPUs of this machine needs it"
        )
    free = free_bytes(folder)
    advice = "too small for NCCL on several GPUs of this machine; in a container, --shm-size=1g. CPU ranks don't need it"
    return finding(str(folder), f"{size(free)} free", size(needed), free >= needed, advice, "note")


def rendezvous_finding(meet: Callable[[], None] | None = None) -> Finding:
    """Two real ranks over loopback, with the launcher and the collectives of a run."""
    try:
        (meet or _meet)()
    except (RankError, RankDied, LaunchTimeout, OSError) as error:
        cause = getattr(error, "cause", None) or str(error).splitlines()[0]
        advice = f"{cause}; is loopback up, and does GLOO_SOCKET_IFNAME name an interface of this machine?"
        return Finding("two ranks meet", "no", "yes", "fails", advice)
    return Finding("two ranks meet", "yes", "yes", "ok")


def _meet() -> None:
    sums = launch(summed_rank, 2, timeout=90.0, collective_timeout=30.0)
    if sums != [1.0, 1.0]:
        raise OSError(f"an all-reduce of 0 and 1 gave {sums}")


def summed_rank() -> float:
    """On a rank: the sum of all ranks' numbers."""
    import torch
    import torch.distributed as dist

    number = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(number)
    return float(number)


def slurm_finding(which: Callable[[str], str | None]) -> Finding:
    """Whether jobs can be submitted from here."""
    there = [name for name in ("sinfo", "sbatch", "srun") if which(name)]
    if len(there) == 3:
        return Finding("Slurm", "sinfo, sbatch, srun", "for --profile slurm alone", "ok")
    found = ", ".join(there) or "none"
    return Finding("Slurm", found, "for --profile slurm alone", "note", "blocks run on this machine, not by --profile slurm")


def memory_finding(what: str, needed: int, submitted: bool = False) -> Finding:
    """Memory that this process may use, against what is needed; where Slurm runs blocks elsewhere, it stops nothing here."""
    total = memory_bytes()
    if submitted:
        return finding(
            what, size(total), size(needed), total >= needed, "too small to run here: give Slurm nodes of this size", "note"
        )
    return finding(what, size(total), size(needed), total >= needed, "take fewer ranks, smaller tables or a larger machine")


def submits(which: Callable[[str], str | None] = shutil.which) -> bool:
    """Whether this machine can hand blocks to Slurm."""
    return which("sbatch") is not None
