"""Two-dimensional sparse parallelism of a step: exchange, lookup and fused update in a group, replicas kept together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.exchange import Exchange
from meshrec.embeddings.kernels import make_tables
from meshrec.embeddings.plan import Plan
from meshrec.embeddings.replicate import ReplicaAverage, SyncSize, TwinGradients
from meshrec.embeddings.rows import RowGradients, sum_by_row
from meshrec.experiment.schema import Kernel, Layout
from meshrec.mesh.collectives import Collectives

InitialRows = Callable[[int, int, int], torch.Tensor]
"""(table, start, stop) → [stop − start, D] float32 initial weights, the same whoever asks."""


@dataclass(frozen=True)
class LookedUp:
    """What a step's update needs to know of its lookup."""

    pooled: torch.Tensor
    """[N·b, S·D], with the update as its backward."""
    local: torch.Tensor
    """[S, N·b] int32 rows within their shard."""
    held: torch.Tensor | None
    """[S, N·b] bool, which of them this rank holds; None where it holds whole tables."""


class ShardedEmbeddings:
    """All embedding tables of the model, sharded over this rank's group and replicated over the groups.

    A step calls, in order: `input_exchange`, `lookup`, `output_exchange`, `gradient_exchange`, `merge_twins`, `update`,
    `synchronise`.
    """

    def __init__(
        self, plan: Plan, dim: int, optimizer: KernelOptimizer, layout: Layout, kernel: Kernel, collectives: Collectives
    ) -> None:
        """Allocate this rank's shards.

        Args:
            plan: who holds what in a sharding group.
            dim: D.
            optimizer: kernel parameters.
            layout: how twins are kept together, and after how many steps.
            kernel: what holds, looks up and updates the rows.
            collectives: of the mesh that the engine runs on.
        """
        mesh = collectives.mesh
        self.plan = plan
        self.shards = plan.of(mesh.shard)
        self.tables = make_tables(kernel, self.shards, dim, optimizer, mesh.device)
        self.exchange = Exchange(plan, mesh.shard, dim, collectives)
        self.average = ReplicaAverage(self.tables, collectives) if layout.replicas > 1 and layout.sync == "weights" else None
        self.twins = TwinGradients(dim, collectives) if layout.replicas > 1 and layout.sync == "gradients" else None
        self._mesh = mesh
        self._sync_every = layout.sync_every
        self._steps = 0
        self._looked_up: LookedUp | None = None
        self._updated: LookedUp | None = None
        rows = [shard.rows for shard in self.shards]
        self._starts = torch.tensor([shard.start for shard in self.shards], dtype=torch.int32, device=mesh.device)[:, None]
        self._rows = torch.tensor(rows, dtype=torch.int32, device=mesh.device)[:, None]
        self._whole = all(shard.rows == plan.table_rows[shard.table] for shard in self.shards)

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

        With gradients on, the lookup is remembered for `update`.
        """
        local = ids - self._starts
        if self._whole:
            held = None
            indices, offsets = local.reshape(-1), torch.arange(local.numel() + 1, device=ids.device)
        else:
            held = (local >= 0) & (local < self._rows)
            indices = local[held]
            offsets = torch.nn.functional.pad(held.reshape(-1).cumsum(0), (1, 0))
        pooled = self.tables.lookup(indices.long(), offsets)
        if torch.is_grad_enabled():
            self._looked_up = LookedUp(pooled, local, held)
        return pooled.detach()

    def output_exchange(self, pooled: torch.Tensor) -> torch.Tensor:
        """Bring the pooled embeddings to their samples' ranks: [N·b, S·D] → [b, F, D] float32."""
        return self.exchange.pooled_to_samples(pooled)

    def gradient_exchange(self, gradients: torch.Tensor) -> torch.Tensor:
        """Send gradients [b, F, D] of this rank's mean loss to the owners, as gradients [N·b, S·D] of the group's mean loss."""
        return self.exchange.gradients_to_owners(gradients)

    def merge_twins(self, gradients: torch.Tensor) -> torch.Tensor | RowGradients:
        """With `sync: gradients`, replace gradients [N·b, S·D] of the group's mean loss by those of the global mean loss."""
        if self.twins is None:
            return gradients
        looked_up = self._of_this_step()
        by_shard = gradients.view(len(gradients), len(self.shards), -1).transpose(0, 1)
        entries = by_shard.flatten(0, 1) if looked_up.held is None else by_shard[looked_up.held]
        return self.twins.merge(sum_by_row(self._flat_rows(looked_up), entries))

    def update(self, gradients: torch.Tensor | RowGradients) -> None:
        """Apply what `merge_twins` returned to the rows of the last lookup."""
        looked_up = self._of_this_step()
        self._looked_up = None
        if isinstance(gradients, RowGradients):
            self.tables.apply(gradients.rows, gradients.gradients)
        else:
            torch.autograd.backward(looked_up.pooled, gradients)
        self._updated = looked_up

    def synchronise(self) -> None:
        """End of a step: with `sync: weights`, every K-th averages weights and moments over the replicas."""
        self._steps += 1
        if self.average is None or self._updated is None:
            return
        self.average.touch(self._flat_rows(self._updated))
        if self._steps % self._sync_every == 0:
            self.average.average()

    def finish(self) -> None:
        """Average what is left over from steps since the last average, so that all replicas are one model."""
        if self.average is not None:
            self.average.average()

    @property
    def sync_sizes(self) -> list[SyncSize]:
        """What each synchronisation of the replicas moved."""
        used = self.average or self.twins
        return used.sizes if used else []

    @property
    def sync_buffer_bytes(self) -> int:
        """Bytes of the largest synchronisation's buffers."""
        used = self.average or self.twins
        return used.buffer_bytes if used else 0

    def _of_this_step(self) -> "LookedUp":
        if self._looked_up is None:
            raise RuntimeError("update without a lookup before it: call lookup with gradients on, once for each update")
        return self._looked_up

    def _flat_rows(self, looked_up: "LookedUp") -> torch.Tensor:
        """Rows of the flat buffer [n] int64 that a lookup read, shard by shard, with repeats."""
        rows = looked_up.local + self.tables.first_rows[:, None]
        return rows.reshape(-1) if looked_up.held is None else rows[looked_up.held]

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
            "sync": "weights" if self.average else "gradients" if self.twins else None,
            "sync_every": self._sync_every if self._mesh.size("replicate") > 1 else None,
            "rows_held": sum(shard.rows for shard in self.shards),
        }
