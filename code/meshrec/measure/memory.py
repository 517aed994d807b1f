"""Memory of one rank: the formula of each component, and the process's own peak."""

import sys
from pathlib import Path

import psutil

from meshrec.measure.wire import FLOAT_BYTES, StepShape


def analytic_memory(shape: StepShape, rows_held: int, dense_state: int) -> dict[str, int]:
    """Bytes of each component on a rank.

    Args:
        shape: sizes of the rank's step.
        rows_held: embedding rows on the rank.
        dense_state: numbers that the dense optimizer keeps for each parameter.
    """
    vector = shape.dim * FLOAT_BYTES
    pooled = shape.shards * shape.rank_batch * shape.own_shards * vector
    embeddings = shape.rank_batch * shape.features * vector
    from_all_owners = shape.rank_batch * shape.all_shards * vector
    return {
        "tables": rows_held * vector,
        "optimizer_state": rows_held * FLOAT_BYTES if shape.moments else 0,
        "dense_parameters": shape.dense_parameters * FLOAT_BYTES,
        "dense_gradients": (shape.dense_parameters + 1) * FLOAT_BYTES,
        "dense_state": shape.dense_parameters * dense_state * FLOAT_BYTES,
        "embedding_activations": pooled + embeddings,
        "embedding_gradients": embeddings + pooled,
        "exchange_buffers": pooled + from_all_owners if shape.shards > 1 else 0,
    }


def reset_peak_rss() -> None:
    """Start a new peak of this process's resident memory, where the kernel offers that (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_rss_bytes() -> int | None:
    """Peak of this process's resident memory since the last reset, in bytes; None where it can't be had for one run alone."""
    if sys.platform != "linux":
        return None
    status = Path("/proc/self/status").read_text()
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), None)
    return int(line.split()[1]) * 1024 if line else psutil.Process().memory_info().rss
