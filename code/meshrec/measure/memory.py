"""Memory of one rank: the formula of each component, and the process's own peak."""

import sys
from pathlib import Path

import psutil

from meshrec.measure.wire import FLOAT_BYTES, StepShape


def analytic_memory(shape: StepShape, dense_state: int, storage: int = 1, local_twins: int = 1) -> dict[str, int]:
    """Bytes of each component on a rank.

    Args:
        shape: sizes of the rank's step.
        dense_state: numbers that the dense optimizer keeps for each parameter.
        storage: ranks over which a shard is stored between uses: 1, or M.
        local_twins: replicas of every shard on the rank itself: 1, or M where one process computes what M groups compute.
    """
    samples = shape.shards * shape.rank_batch
    pooled = samples * shape.own_width * FLOAT_BYTES
    embeddings = shape.rank_batch * shape.model_width * FLOAT_BYTES
    from_all_owners = shape.rank_batch * shape.all_width * FLOAT_BYTES
    return {
        "tables": local_twins * (-(-shape.weights // storage) + shape.replicated_weights) * FLOAT_BYTES,
        "optimizer_state": local_twins * (-(-shape.states // storage) + shape.replicated_states) * FLOAT_BYTES,
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
