"""Kernels that hold, look up and update the table shards of one rank, behind one interface.

`fbgemm` is what is measured, on CPU and GPU. `torch` is plain PyTorch on any device: the readable reference.
"""

import torch

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.kernels.fbgemm import FbgemmTables
from meshrec.embeddings.kernels.reference import TorchTables
from meshrec.embeddings.kernels.tables import ShardTables
from meshrec.embeddings.plan import TableShard
from meshrec.experiment.schema import Kernel

_CLASSES: dict[Kernel, type[ShardTables]] = {"fbgemm": FbgemmTables, "torch": TorchTables}


def make_tables(
    kernel: Kernel, shards: list[TableShard], dim: int, optimizer: KernelOptimizer, device: torch.device
) -> ShardTables:
    """Allocate the rows of one rank's shards; weights are to be written before use."""
    return _CLASSES[kernel](shards, dim, optimizer, device)


__all__ = ["FbgemmTables", "ShardTables", "TorchTables", "make_tables"]
