"""The device of a rank, chosen at run time: one GPU for each rank where there are enough, else the CPU."""

import torch


def device_of(rank: int, ranks: int) -> torch.device:
    """Device of a rank of a launch on this machine. NCCL needs a GPU of its own for every rank."""
    if torch.cuda.is_available() and torch.cuda.device_count() >= ranks:
        return torch.device("cuda", rank)
    return torch.device("cpu")


def backend_of(device: torch.device) -> str:
    """torch.distributed backend that serves a device."""
    return "nccl" if device.type == "cuda" else "gloo"


def synchronise(device: torch.device) -> None:
    """Wait until the device has done all it was given. A CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> None:
    """Start a new peak of what is allocated on a GPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_allocated_bytes(device: torch.device) -> int | None:
    """Largest number of bytes allocated on a GPU since the last reset; None on a CPU, where the process has a peak."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
