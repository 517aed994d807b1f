"""What this process may use of the machine: the machine's own size, or less where a container or a job says so."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def memory_bytes(groups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Memory of the machine, or the smallest limit of this process's control groups."""
    limits = [int(text) for text in _settings("memory.max", groups, own) if text.isdecimal()]
    return min([int(psutil.virtual_memory().total), *limits])


def cores(groups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Cores that this process may run on, or the smallest number whose time its control groups grant it."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [text.split() for text in _settings("cpu.max", groups, own)]
    granted = [max(1, int(quota) // int(period)) for quota, period in shares if quota.isdecimal()]
    return min([allowed, *granted])


def _settings(name: str, groups: Path, own: Path) -> Iterator[str]:
    """A setting of this process's control group (version 2) and of all groups that it lies in: each of them holds."""
    try:
        path = own.read_text().strip().rpartition("::")[2].lstrip("/")
    except OSError:
        return
    group = groups / path
    for folder in [group, *group.parents]:
        with contextlib.suppress(OSError):
            yield (folder / name).read_text().strip()
        if folder == groups:
            return


def existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    path = path.resolve()
    while not path.is_dir():
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """Free space where a folder is, or would be made."""
    return shutil.disk_usage(existing(path)).free


def device_of(path: Path) -> int:
    """Number of the file system that a folder is on, or would be made on."""
    return existing(path).stat().st_dev
