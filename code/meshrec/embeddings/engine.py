"""Two-dimensional sparse parallelism of a step: exchange, lookup and fused update in a group, replicas kept together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from meshrec.embeddings.columns import ColumnSquares
from meshrec.embeddings.exchange import Exchange
from meshrec.embeddings.kernels import ShardTables
from meshrec.embeddings.local import RankTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.packing import averaged_states
from meshrec.embeddings.plan import Plan, TableShard
from meshrec.embeddings.replicate import ReplicaAverage, SyncSize, TwinGradients
from meshrec.embeddings.rows import RowGradients
from meshrec.embeddings.storage import ShardedStorage
from meshrec.embeddings.whole import WholeTables
from meshrec.experiment.schema import Kernel, Layout
from meshrec.mesh.collectives import Collectives, Pending

InitialRows = Callable[[int, int, int], torch.Tensor]
"""(table, start, stop) → [stop − start, D] float32 initial weights, the same whoever asks."""


@dataclass(frozen=True)
class Sent:
    """Ids on their way to the owners."""

    pending: Pending
    samples: int
    """b."""
    whole: torch.Tensor | None
    """[C, b] int32 ids of replicated tables, which stay here."""


@dataclass(frozen=True)
class Arrived:
    """Ids that a step can look up."""

    ids: torch.Tensor
    """[C, N·b] int32."""
    whole: torch.Tensor | None
    step: int
    """Its number, from 1; 0 for a prediction."""
    announced: Pending | None
    """The twins' lists of rows, where this step synchronises."""


@dataclass(frozen=True)
class Sizes:
    """Rows of some kernels, their numbers, and those of their optimizer state."""

    rows: int
    weights: int
    states: int
    averaged: int
    """Of the state, what an average covers."""


def _sizes(kernels: list[ShardTables]) -> Sizes:
    return Sizes(
        sum(tables.rows for tables in kernels),
        sum(tables.weights().numel() for tables in kernels),
        sum(state.numel() for tables in kernels for state in tables.states().values()),
        sum(state.numel() for tables in kernels for state in averaged_states(tables.states())),
    )


class ShardedEmbeddings:
    """All embedding tables of the model, sharded over this rank's group and replicated over the groups.

    A step calls, in order: `send`, `arrive`, `lookup`, `output_exchange`, `gradient_exchange`, `merge_twins`, `update`,
    `synchronise`. The first two of the next step may come before the rest of this one has ended.

    With `local_twins` = M, one rank computes what M groups compute: its samples are those of the groups, one after the other.
    """

    def __init__(
        self,
        plan: Plan,
        optimizer: RowOptimizer,
        layout: Layout,
        kernel: Kernel,
        collectives: Collectives,
        local_twins: int = 1,
    ) -> None:
        """Allocate this rank's shards.

        Args:
            plan: who holds what in a sharding group.
            optimizer: what a kernel computes for a row.
            layout: how twins are kept together, and after how many steps.
            kernel: what holds, looks up and updates the rows.
            collectives: of the mesh that the engine runs on.
            local_twins: replicas on this rank.
        """
        mesh = collectives.mesh
        self.plan = plan
        self.shards = plan.of(mesh.shard)
        self.twins = [RankTables(self.shards, optimizer, kernel, mesh.device) for _ in range(local_twins)]
        self.whole = self._replicated(local_twins, optimizer, kernel, layout, collectives)
        self.exchange = Exchange(plan, mesh.shard, collectives)
        self._columns = ColumnSquares.of(self.twins[0], plan, optimizer, collectives)
        averages = layout.replicas > 1 and layout.sync == "weights"
        sharded = layout.replica_storage == "sharded"
        self.average = ReplicaAverage(self.twins, layout, collectives) if averages and not sharded else None
        self.gradients = TwinGradients(self.twins, collectives) if layout.replicas > 1 and layout.sync == "gradients" else None
        self.storage = ShardedStorage(self.twins[0], collectives) if averages and sharded and local_twins == 1 else None
        if averages and sharded and local_twins > 1:  # nothing to take apart on one rank: averaging whole shards is the same
            self.average = ReplicaAverage(self.twins, layout, collectives)
        self._mesh = mesh
        self._ledger = collectives.ledger
        self._layout = layout
        self.steps = 0
        """Steps whose ids have arrived."""
        self._unaveraged = 0

    def _replicated(
        self, twins: int, optimizer: RowOptimizer, kernel: Kernel, layout: Layout, collectives: Collectives
    ) -> WholeTables | None:
        shards = self.plan.whole(collectives.mesh.shard)
        if not shards:
            return None
        copies = [RankTables(shards, optimizer, kernel, collectives.mesh.device) for _ in range(twins)]
        return WholeTables(copies, self.plan, layout, collectives)

    def initialise(self, initial_rows: InitialRows) -> None:
        """Write the initial weights."""
        for tables in self.kernels():
            row = 0
            for shard in tables.shards:
                rows = initial_rows(shard.table, shard.start, shard.stop)[:, shard.left : shard.right]
                tables.weights()[row : row + shard.rows] = rows
                row += shard.rows
        if self.storage:
            self.storage.release()

    @contextmanager
    def whole_shards(self) -> Iterator[None]:
        """Have whole shards for a while, however replicas store them; collective over the replica group.

        What that sends is no part of a step, so that the ledger doesn't count it.
        """
        if self.storage:
            with self._ledger.closed():
                self.storage.gather()
        yield
        if self.storage:
            self.storage.release()

    def resume(self, steps: int, kernel_steps: int) -> None:
        """Go on after so many steps, and updates as the kernels count them."""
        self.steps = steps
        self._unaveraged = steps % self._layout.sync_every
        for tables in self.kernels():
            tables.steps = kernel_steps

    def kernels(self) -> list[ShardTables]:
        """Kernels of all local twins, sharded and replicated."""
        replicated = self.whole.twins if self.whole else []
        return [tables for twin in (*self.twins, *replicated) for tables in twin.kernels]

    # --- ahead of the step --------------------------------------------------------------------------------------------

    def send(self, ids: torch.Tensor) -> Sent:
        """Begin the input exchange of ids [b, H] int32 of this rank's samples."""
        return Sent(self.exchange.start_ids(ids), len(ids), self.whole.ids(ids) if self.whole else None)

    def arrive(self, sent: Sent, training: bool = True) -> Arrived:
        """End the input exchange, and begin to tell twins which rows the step will touch, if they need to know for it."""
        ids = self.exchange.ids_of_group(sent.pending.wait(), sent.samples)
        if not training:
            return Arrived(ids, sent.whole, 0, None)
        self.steps += 1
        return Arrived(ids, sent.whole, self.steps, self._announce(ids))

    def _announce(self, ids: torch.Tensor) -> Pending | None:
        """Note which rows a step will change, and tell twins if it is to synchronise."""
        lookups = ids.numel() // len(self.twins)
        if self.gradients is not None:
            return self.gradients.announce(self._touched(ids), lookups)
        if self.average is None:
            return None
        self.average.touch(self.steps, self._touched(ids) if self.average.lists_rows else [], lookups)
        return self.average.announce(self.steps) if self.steps % self._layout.sync_every == 0 else None

    def _touched(self, ids: torch.Tensor) -> list[torch.Tensor]:
        return [twin.touched(part) for twin, part in zip(self.twins, self._by_twin(ids), strict=True)]

    # --- the step -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for an average that overlapped what came before: the next lookup needs it."""
        if self.average is not None:
            self.average.settle()

    def lookup(self, arrived: Arrived) -> torch.Tensor:
        """Pool the rows of this rank's shards for the group's samples: [N·b, W] float32."""
        self.settle()
        if self.storage:
            self.storage.gather()
        twins = self.twins if torch.is_grad_enabled() else self.twins[:1]  # equal when a prediction may be asked for
        parts = self._by_twin(arrived.ids) if len(twins) > 1 else [arrived.ids]
        pooled = [twin.lookup(part) for twin, part in zip(twins, parts, strict=True)]
        if self.storage:
            self.storage.release()
        return pooled[0] if len(pooled) == 1 else torch.cat(pooled)

    def output_exchange(self, pooled: torch.Tensor, arrived: Arrived) -> torch.Tensor:
        """Bring the pooled embeddings to their samples' ranks: [N·b, W] → [b, V] float32, table by table."""
        embeddings = self.exchange.pooled_to_samples(pooled)
        if self.whole:
            assert arrived.whole is not None
            self.whole.fill(embeddings, arrived.whole, len(self.twins) if torch.is_grad_enabled() else 1)
        return embeddings

    def gradient_exchange(self, gradients: torch.Tensor) -> torch.Tensor:
        """Send gradients [b, V] of this rank's mean loss to the owners, as gradients [N·b, W] of the group's mean loss."""
        exchanged = self.exchange.gradients_to_owners(gradients)
        return exchanged if len(self.twins) == 1 else exchanged * len(self.twins)

    def merge_twins(self, gradients: torch.Tensor, arrived: Arrived) -> torch.Tensor | list[RowGradients]:
        """With `sync: gradients`, replace gradients [N·b, W] of the group's mean loss by those of the global mean loss."""
        if self.gradients is None:
            return gradients
        assert arrived.announced is not None
        own = [self._summed(twin, ids, part) for twin, ids, part in self._per_twin(arrived.ids, gradients)]
        return self.gradients.merge(arrived.announced, own)

    def update(self, merged: torch.Tensor | list[RowGradients], arrived: Arrived, gradients: torch.Tensor) -> None:
        """Change the rows of the last lookup.

        Args:
            merged: what `merge_twins` returned.
            arrived: the step's ids.
            gradients: [b, V] of this rank's mean loss, for replicated tables.
        """
        if self.storage:
            self.storage.gather()
        if isinstance(merged, list):
            for twin in self.twins:
                self._apply(twin, merged, arrived.ids.shape[1] * self._layout.replicas // len(self.twins))
        else:
            for twin, ids, part in self._per_twin(arrived.ids, merged):
                self._update(twin, ids, part)
        if self.whole:
            assert arrived.whole is not None
            self.whole.update(arrived.whole, gradients)
        self._unaveraged += 1

    def synchronise(self, arrived: Arrived) -> None:
        """End of a step: with `sync: weights`, every K-th averages weights and optimizer state over the replicas."""
        if arrived.step % self._layout.sync_every:
            return
        if self.storage:
            self.storage.average()
        elif self.average is not None:
            self.average.average(arrived.announced, arrived.step)
        self._average_whole()

    def finish(self) -> None:
        """Average what is left over from steps since the last average, so that all replicas are one model."""
        if self.average is not None:
            self.average.finish()
        if self._unaveraged:
            self._average_whole()

    def _average_whole(self) -> None:
        self._unaveraged = 0
        if self.whole and self._layout.replicas > 1 and self._layout.sync == "weights":
            self.whole.average()

    def _update(self, twin: RankTables, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        if self._columns is not None:
            self._apply(twin, self._summed(twin, ids, gradients), ids.shape[1])
            return
        parts = zip(twin.kernels, twin.split_ids(ids), twin.split_gradients(gradients), strict=True)
        for tables, of_kernel, gradient in parts:
            tables.update(of_kernel, gradient)

    def _summed(self, twin: RankTables, ids: torch.Tensor, gradients: torch.Tensor) -> list[RowGradients]:
        parts = zip(twin.kernels, twin.split_ids(ids), twin.split_gradients(gradients), strict=True)
        return [tables.sum(of_kernel, gradient) for tables, of_kernel, gradient in parts]

    def _apply(self, twin: RankTables, summed: list[RowGradients], samples: int) -> None:
        squares = self._columns.of_rows(summed, samples) if self._columns else [None] * len(summed)
        for tables, of_kernel, mean_squares in zip(twin.kernels, summed, squares, strict=True):
            tables.apply(of_kernel, mean_squares)

    def _by_twin(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Ids [C, N·b] of each local twin's samples."""
        return [ids] if len(self.twins) == 1 else [part.contiguous() for part in ids.chunk(len(self.twins), dim=1)]

    def _per_twin(self, ids: torch.Tensor, gradients: torch.Tensor) -> list[tuple[RankTables, torch.Tensor, torch.Tensor]]:
        return list(zip(self.twins, self._by_twin(ids), gradients.chunk(len(self.twins)), strict=True))

    # --- what is there ------------------------------------------------------------------------------------------------

    def held(self) -> list[tuple[TableShard, torch.Tensor]]:
        """Shards of the first local twin with their live weights [rows, width], replicated tables on the group's first rank."""
        replicated = self.whole.twins[:1] if self.whole and self._mesh.shard == 0 else []
        return [
            (shard, tables.weights()[start : start + shard.rows])
            for twin in (self.twins[0], *replicated)
            for tables in twin.kernels
            for shard, start in zip(tables.shards, tables.first_rows.tolist(), strict=True)
        ]

    def sizes(self) -> tuple[Sizes, Sizes]:
        """Of this rank's sharded tables and of its replicated ones, for one twin."""
        return _sizes(self.twins[0].kernels), _sizes(self.whole.twins[0].kernels if self.whole else [])

    def held_bytes(self) -> tuple[int, int]:
        """Bytes of weights and of optimizer state that this rank holds between steps."""
        if self.storage is None:
            sizes = _sizes(self.kernels())
            return 4 * sizes.weights, 4 * sizes.states
        replicated = self.sizes()[1]
        weights, states = self.storage.held_bytes()
        return weights + 4 * replicated.weights, states + 4 * replicated.states

    def column_squares(self, samples: int) -> int:
        """Room for partial squares of tables whose columns are split, for a group's samples."""
        return self._columns.numbers(samples) if self._columns else 0

    @property
    def sync_sizes(self) -> list[SyncSize]:
        """What each synchronisation of the replicas moved."""
        used = self.average or self.gradients
        return used.sizes if used else []

    @property
    def sync_buffer_bytes(self) -> int:
        """Bytes of the largest synchronisation's buffers."""
        used = self.average or self.gradients
        return used.buffer_bytes if used else 0

    def _sync_moments(self, tables: ShardTables) -> str:
        if "lagged_moments" in tables.states():
            return "lagged"
        return "local" if self.average is not None and not self.average.with_states else "averaged"

    def live(self) -> dict[str, Any]:
        """What is really there, read off the kernels and the process groups."""
        tables = self.kernels()[0]
        moments = tables.states().get("moments")
        synced = self._layout.replicas > 1
        return {
            **tables.live(),
            "initial_moment": float(moments[0]) if moments is not None and moments.untyped_storage().nbytes() else 0.0,
            "sharding_group": dist.get_process_group_ranks(self._mesh.shard_group),
            "replica_group": dist.get_process_group_ranks(self._mesh.replica_group),
            "replicas": self._mesh.size("replicate") * len(self.twins),
            "shards": self._mesh.size("shard"),
            "sync": "weights" if self.average or self.storage else "gradients" if self.gradients else None,
            "sync_every": self._layout.sync_every if synced else None,
            "sync_moments": self._sync_moments(tables) if synced else None,
            "local_twins": len(self.twins),
            "rows_held": sum(tables.rows for tables in self.kernels()) // len(self.twins),
        }
