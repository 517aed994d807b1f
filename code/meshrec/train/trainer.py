"""One rank's share of one run: the model over the mesh, a training step, a prediction."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional

from meshrec.embeddings.engine import Arrived, ShardedEmbeddings
from meshrec.embeddings.optimizers import row_optimizer
from meshrec.embeddings.plan import Plan
from meshrec.experiment.cells import Cell
from meshrec.measure.clock import PhaseClock
from meshrec.measure.ledger import Ledger
from meshrec.measure.wire import StepShape
from meshrec.mesh.collectives import Collectives
from meshrec.mesh.groups import MeshPool
from meshrec.models.replicated import ReplicatedDense
from meshrec.train.feed import Batch, Feed
from meshrec.train.initial import initial_model, initial_rows
from meshrec.train.setup import local_twins, make_cell_plan, mesh_layout, samples_by_twin


@dataclass
class StepTensors:
    """Largest bytes seen of what a step holds between its phases."""

    embedding_activations: int = 0
    embedding_gradients: int = 0

    def note(self, activations: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Compare one step's tensors with the largest so far."""
        self.embedding_activations = max(self.embedding_activations, sum(tensor.nbytes for tensor in activations))
        self.embedding_gradients = max(self.embedding_gradients, sum(tensor.nbytes for tensor in gradients))


@dataclass(frozen=True)
class Staged:
    """A batch whose ids have arrived at their owners."""

    batch: Batch
    arrived: Arrived


class Ahead(Protocol):
    """What a step does for the next one while it waits for others."""

    def fetch(self, clock: PhaseClock) -> None:
        """Before the dense forward: take the next batch and send its ids."""

    def receive(self, clock: PhaseClock) -> None:
        """After the dense backward: take in its ids."""


class Trainer:
    """A cell's model on this rank, built the same way for every layout and optimizer."""

    def __init__(self, cell: Cell, meshes: MeshPool, plan: Plan | None = None) -> None:
        """Build the model; collective over the launch if its mesh is new.

        Args:
            cell: what is run.
            meshes: of this launch.
            plan: who holds what; by the cell's own rule when left out.

        Raises:
            PlanError: the tables can't be sharded as asked; on every rank alike.
        """
        experiment, layout = cell.experiment, cell.layout_level
        self.cell = cell
        self.plan = plan or make_cell_plan(cell)
        self.mesh = meshes.mesh(mesh_layout(cell))
        self.ledger = Ledger()
        collectives = Collectives(self.mesh, self.ledger)
        optimizer = row_optimizer(cell.optimizer_level, lagged=layout.replicas > 1 and layout.sync_moments == "lagged")
        kernel = experiment.training.kernel
        self.embeddings = ShardedEmbeddings(self.plan, optimizer, layout, kernel, collectives, local_twins(cell))
        dims = experiment.model.dims_of_tables
        self.embeddings.initialise(initial_rows(cell.seed, experiment.dataset.rows_of_tables, dims))
        self.model = initial_model(cell.seed, experiment.model).to(self.mesh.device)
        self.dense = ReplicatedDense(self.model, experiment.training.dense_optimizer, collectives)
        self.feed = Feed(
            experiment.dataset.rows_of_tables, experiment.model.hots_of_tables, self.mesh.device, samples_by_twin(cell)
        )
        self.held = StepTensors()

    def stage(self, batch: Batch, clock: PhaseClock) -> Staged:
        """Exchange a batch's ids at once, before its step."""
        with clock.phase("input_exchange"):
            return Staged(batch, self.embeddings.arrive(self.embeddings.send(batch.ids)))

    def step(self, batch: Batch, clock: PhaseClock) -> torch.Tensor:
        """Train on one global batch, of which this rank has its part; returns the global mean loss, 0-d."""
        return self.compute(self.stage(batch, clock), clock)

    def compute(self, staged: Staged, clock: PhaseClock, ahead: Ahead | None = None) -> torch.Tensor:
        """`step` after its input exchange, with what it does for the next step in between."""
        batch, arrived, embeddings, dense = staged.batch, staged.arrived, self.embeddings, self.dense
        with clock.phase("dense_forward"):
            bottom = self.model.bottom(batch.dense)  # before the lookup: an average of replicas may still be under way
        with clock.phase("replica_sync"):
            embeddings.settle()
        with clock.phase("lookup"):
            pooled = embeddings.lookup(arrived)
        with clock.phase("output_exchange"):
            vectors = embeddings.output_exchange(pooled, arrived).requires_grad_()
        if ahead:
            ahead.fetch(clock)
        with clock.phase("dense_forward"):
            loss = functional.binary_cross_entropy_with_logits(self.model.over(bottom, vectors), batch.labels)
        with clock.phase("dense_backward"):
            dense.zero_gradients()
            torch.autograd.backward(loss)
        with clock.phase("dense_all_reduce"):
            summing = dense.start_all_reduce(loss.detach())  # beside the gradient exchange and the update
        if ahead:
            ahead.receive(clock)
        assert vectors.grad is not None
        with clock.phase("gradient_exchange"):
            gradients = embeddings.gradient_exchange(vectors.grad)
        with clock.phase("replica_sync"):
            merged = embeddings.merge_twins(gradients, arrived)
        with clock.phase("update"):
            embeddings.update(merged, arrived, vectors.grad)
        with clock.phase("replica_sync"):
            embeddings.synchronise(arrived)
        with clock.phase("dense_all_reduce"):
            global_loss = dense.finish_all_reduce(summing)
        with clock.phase("dense_update"):
            dense.step()
        self.held.note([pooled, vectors], [vectors.grad, gradients])
        return global_loss

    @torch.no_grad()
    def predict(self, batch: Batch) -> torch.Tensor:
        """Click logits [b] of this rank's samples. Collective: every rank of a group predicts at the same time."""
        arrived = self.embeddings.arrive(self.embeddings.send(batch.ids), training=False)
        vectors = self.embeddings.output_exchange(self.embeddings.lookup(arrived), arrived)
        logits: torch.Tensor = self.model(batch.dense, vectors)
        return logits

    def shape(self) -> StepShape:
        """Sizes of this rank's step, for the formulas."""
        layout, plan, own = self.mesh.layout, self.plan, self.embeddings.shards
        sharded, replicated = self.embeddings.sizes()
        exact = self.embeddings.gradients is not None  # then a group updates by the gradients of all
        samples = self.cell.global_batch if exact else self.cell.global_batch // layout.replicas
        return StepShape(
            ranks=layout.ranks,
            replicas=layout.replicas,
            shards=layout.shards,
            rank_batch=self.cell.global_batch // layout.ranks,
            all_ids=sum(shard.hots for shard in plan.shards),
            own_ids=sum(shard.hots for shard in own),
            all_width=sum(shard.width for shard in plan.shards),
            own_width=sum(shard.width for shard in own),
            model_width=sum(shape.dim for shape in plan.tables),
            dense_parameters=self.dense.flat.numel(),
            rows=sharded.rows,
            weights=sharded.weights,
            states=sharded.states,
            replicated_rows=replicated.rows,
            replicated_weights=replicated.weights,
            replicated_states=replicated.states,
            column_squares=self.embeddings.column_squares(samples),
        )

    @property
    def stored_over(self) -> int:
        """Ranks over which a shard is stored between uses."""
        return self.mesh.layout.replicas if self.embeddings.storage else 1

    def live(self) -> dict[str, Any]:
        """What is really there, read off the wrapped objects."""
        optimizer = self.dense.optimizer
        return {
            **self.embeddings.live(),
            "dense_optimizer": type(optimizer).__name__,
            "dense_lr": optimizer.param_groups[0]["lr"],
            "dense_parameters": self.dense.flat.numel(),
            "threads": torch.get_num_threads(),
        }
