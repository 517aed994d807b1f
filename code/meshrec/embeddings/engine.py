"""Two-dimensional sparse parallelism of a step: exchange, lookup and fused update inside a group, average over the replicas."""

from collections.abc import Callable
from typing import Any

import torch

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.exchange import Exchange
from meshrec.embeddings.plan import Plan
from meshrec.embeddings.replicate import ReplicaAverage
from meshrec.embeddings.tables import ShardTables
from meshrec.mesh.collectives import Collectives

InitialRows = Callable[[int, int, int], torch.Tensor]
"""(table, start, stop) → [stop − start, D] float32 initial weights, the same whoever asks."""


class ShardedEmbeddings:
    """All embedding tables of the model, sharded over this rank's group and replicated over the groups.

    A step calls, in order: `input_exchange`, `lookup`, `output_exchange`, `gradient_exchange`, `update`, `synchronise`.
    """

    def __init__(self, plan: Plan, dim: int, optimizer: KernelOptimizer, sync_every: int, collectives: Collectives) -> None:
        """Allocate this rank's shards.

        Args:
            plan: who holds what in a sharding group.
            dim: D.
            optimizer: kernel parameters.
            sync_every: K, steps between two averages over the replicas.
            collectives: of the mesh that the engine runs on.
        """
        mesh = collectives.mesh
        self.plan = plan
        self.shards = plan.of(mesh.shard)
        self.tables = ShardTables(self.shards, dim, optimizer, mesh.device)
        self.exchange = Exchange(plan, mesh.shard, dim, collectives)
        self.replicas = ReplicaAverage(self.tables, collectives)
        self._mesh = mesh
        self._sync_every = sync_every
        self._steps = 0
        self._pooled: torch.Tensor | None = None
        starts = [shard.start for shard in self.shards]
        rows = [shard.rows for shard in self.shards]
        self._starts = torch.tensor(starts, dtype=torch.int32, device=mesh.device)[:, None]
        self._rows = torch.tensor(rows, dtype=torch.int32, device=mesh.device)[:, None]
        self._whole = all(shard.rows == plan.table_rows[shard.table] for shard in self.shards)
        offsets = [sum(rows[:index]) for index in range(len(rows))]
        self._flat_offsets = torch.tensor(offsets, device=mesh.device)[:, None]

    def initialise(self, initial_rows: InitialRows) -> None:
        """Write the initial weights."""
        weights, row = self.tables.weights(), 0
        for shard in self.shards:
            weights[row : row + shard.rows] = initial_rows(shard.table, shard.start, shard.stop)
            row += shard.rows

    def input_exchange(self, ids: torch.Tensor) -> torch.Tensor:
        """Send the ids [b, F] int32 of this rank's samples to the owners; returns [S, N·b] int32 for this rank's shards."""
        return self.exchange.ids_to_owners(ids)

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        """Pool the rows of this rank's shards for the group's samples: ids [S, N·b] → [N·b, S·D] float32.

        With gradients on, the lookup is remembered for `update`, and the rows for the average over the replicas.
        """
        local = ids - self._starts
        if self._whole:
            indices, offsets = local, torch.arange(local.numel() + 1, device=ids.device)
            flat = local + self._flat_offsets
        else:
            held = (local >= 0) & (local < self._rows)
            indices = local[held]
            offsets = torch.zeros(local.numel() + 1, dtype=torch.int64, device=ids.device)
            torch.cumsum(held.view(-1), 0, out=offsets[1:])
            flat = (local + self._flat_offsets)[held]
        pooled = self.tables.lookup(indices.reshape(-1).long(), offsets)
        if torch.is_grad_enabled():
            self._pooled = pooled
            self.replicas.touch(flat.reshape(-1))
        return pooled.detach()

    def output_exchange(self, pooled: torch.Tensor) -> torch.Tensor:
        """Bring the pooled embeddings to their samples' ranks: [N·b, S·D] → [b, F, D] float32."""
        return self.exchange.pooled_to_samples(pooled)

    def gradient_exchange(self, gradients: torch.Tensor) -> torch.Tensor:
        """Send gradients [b, F, D] of this rank's mean loss to the owners, as gradients [N·b, S·D] of the group's mean loss."""
        return self.exchange.gradients_to_owners(gradients)

    def update(self, gradients: torch.Tensor) -> None:
        """Apply gradients [N·b, S·D] to the rows of the last lookup."""
        if self._pooled is None:
            raise RuntimeError("update without a lookup before it: call lookup with gradients on, once for each update")
        torch.autograd.backward(self._pooled, gradients)
        self._pooled = None

    def synchronise(self) -> None:
        """End of a step: every K-th averages weights and moments over the replicas."""
        self._steps += 1
        if self._steps % self._sync_every == 0:
            self.replicas.average()

    def finish(self) -> None:
        """Average what is left over from steps since the last average, so that all replicas are one model."""
        self.replicas.average()

    def live(self) -> dict[str, Any]:
        """What is really there, read off the kernel and the process groups."""
        import torch.distributed as dist

        return {
            **self.tables.live(),
            "initial_moment": float(self.tables.moments()[:1].sum()),
            "sharding_group": dist.get_process_group_ranks(self._mesh.shard_group),
            "replica_group": dist.get_process_group_ranks(self._mesh.replica_group),
            "replicas": self._mesh.size("replicate"),
            "shards": self._mesh.size("shard"),
            "sync_every": self._sync_every if self._mesh.size("replicate") > 1 else None,
            "rows_held": sum(shard.rows for shard in self.shards),
        }
