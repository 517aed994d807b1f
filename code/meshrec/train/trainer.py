"""One rank's share of one run: the model over the mesh, a training step, a prediction."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from meshrec.embeddings.adagrad import kernel_optimizer
from meshrec.embeddings.engine import ShardedEmbeddings
from meshrec.embeddings.plan import make_plan
from meshrec.experiment.cells import Cell
from meshrec.experiment.schema import CATEGORICAL_FEATURES
from meshrec.measure.clock import PhaseClock
from meshrec.measure.ledger import Ledger
from meshrec.measure.wire import StepShape
from meshrec.mesh.collectives import Collectives
from meshrec.mesh.groups import MeshPool
from meshrec.mesh.layout import MeshLayout
from meshrec.models.replicated import ReplicatedDense
from meshrec.train.feed import Batch, Feed
from meshrec.train.initial import initial_model, initial_rows


@dataclass
class StepTensors:
    """Largest bytes seen of what a step holds between its phases."""

    embedding_activations: int = 0
    embedding_gradients: int = 0

    def note(self, activations: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Compare one step's tensors with the largest so far."""
        self.embedding_activations = max(self.embedding_activations, sum(tensor.nbytes for tensor in activations))
        self.embedding_gradients = max(self.embedding_gradients, sum(tensor.nbytes for tensor in gradients))


class Trainer:
    """A cell's model on this rank, built the same way for every layout and optimizer."""

    def __init__(self, cell: Cell, meshes: MeshPool) -> None:
        experiment, layout = cell.experiment, cell.layout_level
        rows, dim = experiment.dataset.rows_of_tables, experiment.model.embedding_dim
        plan = make_plan(rows, cell.shards, layout.sharding)
        self.cell = cell
        self.mesh = meshes.mesh(MeshLayout(cell.ranks, layout.replicas, layout.rank_order))
        self.ledger = Ledger()
        collectives = Collectives(self.mesh, self.ledger)
        optimizer = kernel_optimizer(cell.optimizer_level)
        self.embeddings = ShardedEmbeddings(plan, dim, optimizer, layout, experiment.training.kernel, collectives)
        self.embeddings.initialise(initial_rows(cell.seed, rows, dim))
        self.model = initial_model(cell.seed, experiment.model).to(self.mesh.device)
        self.dense = ReplicatedDense(self.model, experiment.training.dense_optimizer, collectives)
        self.feed = Feed(rows, self.mesh.device)
        self.held = StepTensors()

    def step(self, batch: Batch, clock: PhaseClock) -> torch.Tensor:
        """Train on one global batch, of which this rank has its part; returns the global mean loss, 0-d."""
        embeddings, dense = self.embeddings, self.dense
        with clock.phase("input_exchange"):
            ids = embeddings.input_exchange(batch.ids)
        with clock.phase("lookup"):
            pooled = embeddings.lookup(ids)
        with clock.phase("output_exchange"):
            vectors = embeddings.output_exchange(pooled).requires_grad_()
        with clock.phase("dense_forward"):
            loss = functional.binary_cross_entropy_with_logits(self.model(batch.dense, vectors), batch.labels)
        with clock.phase("dense_backward"):
            dense.zero_gradients()
            torch.autograd.backward(loss)
        assert vectors.grad is not None
        with clock.phase("gradient_exchange"):
            gradients = embeddings.gradient_exchange(vectors.grad)
        with clock.phase("replica_sync"):
            merged = embeddings.merge_twins(gradients)
        with clock.phase("update"):
            embeddings.update(merged)
        with clock.phase("dense_all_reduce"):
            global_loss = dense.all_reduce(loss.detach())
        with clock.phase("dense_update"):
            dense.step()
        with clock.phase("replica_sync"):
            embeddings.synchronise()
        self.held.note([pooled, vectors], [vectors.grad, gradients])
        return global_loss

    @torch.no_grad()
    def predict(self, batch: Batch) -> torch.Tensor:
        """Click logits [b] of this rank's samples. Collective: every rank of a group predicts at the same time."""
        pooled = self.embeddings.lookup(self.embeddings.input_exchange(batch.ids))
        logits: torch.Tensor = self.model(batch.dense, self.embeddings.output_exchange(pooled))
        return logits

    def shape(self) -> StepShape:
        """Sizes of this rank's step, for the formulas."""
        plan = self.embeddings.plan
        return StepShape(
            ranks=self.cell.ranks,
            replicas=self.cell.layout_level.replicas,
            shards=self.cell.shards,
            rank_batch=self.cell.global_batch // self.cell.ranks,
            features=CATEGORICAL_FEATURES,
            all_shards=len(plan.shards),
            own_shards=len(self.embeddings.shards),
            dim=self.embeddings.tables.dim,
            dense_parameters=self.dense.flat.numel(),
            moments=kernel_optimizer(self.cell.optimizer_level).has_moments,
        )

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
