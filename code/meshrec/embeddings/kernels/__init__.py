"""Kernels that hold, look up and update the table shards of one rank, behind one interface.

`fbgemm` runs on CPU and GPU. `numba` is compiled for the CPU and has optimizers that fbgemm lacks. `torch` is plain PyTorch on
any device: the readable reference.
"""

import torch

from meshrec.embeddings.kernels.compiled import NumbaTables
from meshrec.embeddings.kernels.fbgemm import FbgemmTables
from meshrec.embeddings.kernels.reference import TorchTables
from meshrec.embeddings.kernels.tables import ShardTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import TableShard
from meshrec.experiment.schema import Kernel

_CLASSES: dict[Kernel, type[ShardTables]] = {"fbgemm": FbgemmTables, "numba": NumbaTables, "torch": TorchTables}


def make_tables(kernel: Kernel, shards: list[TableShard], optimizer: RowOptimizer, device: torch.device) -> ShardTables:
    """Allocate the rows of equally wide shards; weights are to be written before use."""
    return _CLASSES[kernel](shards, optimizer, device)


__all__ = ["FbgemmTables", "NumbaTables", "ShardTables", "TorchTables", "make_tables"]
