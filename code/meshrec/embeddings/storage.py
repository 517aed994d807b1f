"""Replicas that keep 1/M of a shard each between uses: whole before a lookup and an update, then averaged and given back.

The result is that of averaging whole shards. Memory falls while the dense model computes, which is when activations peak.
"""

import torch

from meshrec.embeddings.local import RankTables
from meshrec.embeddings.packing import averaged_states
from meshrec.mesh.collectives import Collectives


class ShardedStorage:
    """Takes the live tensors of a rank's tables apart over its replica group, and puts them together again."""

    def __init__(self, local: RankTables, collectives: Collectives) -> None:
        self._tables = local
        self._parts = [
            _Part(tensor, tensor is weights, collectives)
            for tables in local.kernels
            for weights in (tables.weights(),)
            for tensor in (weights, *averaged_states(tables.states()))
        ]
        self._whole = True

    def gather(self) -> None:
        """Have whole shards; collective over the replica group."""
        if not self._whole:
            for part in self._parts:
                part.gather()
        self._whole = True

    def release(self) -> None:
        """Keep this twin's part only. Twins must be equal."""
        if self._whole:
            for part in self._parts:
                part.release()
        self._whole = False

    def average(self) -> None:
        """Average whole shards over the twins, and keep this twin's part only; collective over the replica group."""
        for part in self._parts:
            part.reduce_scatter()
        self._whole = False

    @property
    def parts(self) -> list[int]:
        """Numbers that this twin keeps of each live tensor."""
        return [part.own.numel() for part in self._parts]

    def held_bytes(self) -> tuple[int, int]:
        """Bytes of weights and of states that stay between uses."""
        weights = sum(part.own.nbytes for part in self._parts if part.is_weights)
        return weights, sum(part.own.nbytes for part in self._parts) - weights


class _Part:
    """One live tensor, whose storage goes and comes."""

    def __init__(self, tensor: torch.Tensor, is_weights: bool, collectives: Collectives) -> None:
        self.is_weights = is_weights
        self._collectives = collectives
        self._twins = collectives.mesh.size("replicate")
        self._storage = tensor.untyped_storage()
        length = -(-tensor.numel() // self._twins)
        self._padded_bytes = 4 * length * self._twins
        self._tensor = tensor
        self.own = tensor.new_empty(length)
        """This twin's part; the last one is filled up."""
        self._index = collectives.mesh.replica

    def gather(self) -> None:
        self._storage.resize_(self._padded_bytes)
        self._collectives.all_gather_into("storage_gather", self._padded(), self.own, "replicate")

    def release(self) -> None:
        self._storage.resize_(self._padded_bytes)
        self.own.copy_(self._padded().view(self._twins, -1)[self._index])
        self._storage.resize_(0)

    def reduce_scatter(self) -> None:
        self._collectives.reduce_scatter_sum("storage_average", self.own, self._padded(), "replicate")
        self.own /= self._twins
        self._storage.resize_(0)

    def _padded(self) -> torch.Tensor:
        """The storage with its filling-up, flat."""
        return torch.empty(0, dtype=torch.float32, device=self._tensor.device).set_(
            self._storage, 0, (self._padded_bytes // 4,), (1,)
        )
