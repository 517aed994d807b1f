"""TorchRec's side of a comparison: `DistributedModelParallel` (1D) or `DMPCollection` (2D), as its documentation uses them.

Fused embedding optimizers by `apply_optimizer_in_backward`, the same table-wise plan as meshrec's, DDP for the dense part. Ids
are one per table, so lengths and offsets of the `KeyedJaggedTensor` are made once and not in every step.
"""

import logging
import os
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torchrec
from numpy.typing import NDArray
from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torch.distributed.remote_device import _remote_device
from torch.nn import functional
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel, DMPCollection
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.models.dlrm import DenseArch, InteractionArch, OverArch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from workload import DENSE, TABLES, Workload

from meshrec.data.batches import Batch

KEYS = [f"feature_{table}" for table in range(TABLES)]
NAMES = [f"table_{table}" for table in range(TABLES)]


class TorchRecDense(nn.Module):
    """The dense part of TorchRec's own DLRM."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.bottom = DenseArch(DENSE, list(workload.bottom))
        self.interaction = InteractionArch(TABLES)
        self.over = OverArch(workload.dim + TABLES * (TABLES + 1) // 2, list(workload.top))

    def forward(self, dense: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Logits [b] from dense features [b, 13] and pooled embeddings [b, F·D]."""
        bottom = self.bottom(dense)
        logits: torch.Tensor = self.over(self.interaction(bottom, embeddings.view(len(bottom), TABLES, -1)))
        return logits.squeeze(1)


class Recommender(nn.Module):
    """Embeddings, dense part and loss in one module, for `DistributedModelParallel` to take apart."""

    def __init__(self, embeddings: nn.Module, dense: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.dense = dense

    def forward(self, dense: torch.Tensor, ids: KeyedJaggedTensor, labels: torch.Tensor) -> torch.Tensor:
        """This rank's mean loss, 0-d."""
        pooled = self.embeddings(ids)
        values = pooled.values()
        if pooled.keys() != KEYS:
            values = torch.cat([pooled[key] for key in KEYS], dim=1)
        return functional.binary_cross_entropy_with_logits(self.dense(dense, values), labels)


class CpuCollection(DMPCollection):
    """`DMPCollection` for a CPU: it names places `rank:r/cpu`, where TorchRec would write `rank:r/cpu:i`. Needs `python -O`."""

    def _remap_sharding_plan(self, plan: ShardingPlan, *args: Any, **kwargs: Any) -> None:
        super()._remap_sharding_plan(plan, *args, **kwargs)
        for module in plan.plan.values():
            for parameter in module.values():
                for shard in _shards(parameter):
                    shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")


def _shards(parameter: Any) -> list[ShardMetadata]:
    return list(parameter.sharding_spec.shards)


class TorchRecSide:
    """Trains a workload with TorchRec on this rank."""

    name = "TorchRec"

    def __init__(self, workload: Workload, device: torch.device, owners: list[int], dense: nn.Module) -> None:
        """Build the model; collective.

        Args:
            workload: what is trained.
            device: of this rank.
            owners: for each table, the rank of a sharding group that holds it.
            dense: the dense part with its initial weights, for itself alone.
        """
        self._device, self._workload = device, workload
        os.environ["LOCAL_WORLD_SIZE"] = str(workload.ranks)  # one machine: TorchRec would ask for it with a warning each time
        _keep_quiet()
        self.model = self._distribute(Recommender(_embeddings(workload), dense.to(device)), owners)
        self._write(workload)
        self._optimizer = torch.optim.SGD(dense.parameters(), lr=workload.dense_lr)
        part = workload.batch // workload.ranks
        self._lengths = torch.ones(TABLES * part, dtype=torch.int32, device=device)
        self._offsets = torch.arange(TABLES * part + 1, dtype=torch.int32, device=device)

    def train(self, batches: list[Batch]) -> None:
        """Train on this rank's parts of some batches, one after the other."""
        for batch in batches:
            self.step(batch)

    def step(self, batch: Batch) -> torch.Tensor:
        """Train on this rank's part of a batch; its mean loss, 0-d."""
        dense, labels = (torch.from_numpy(array).to(self._device) for array in (batch.dense, batch.labels))
        values = torch.from_numpy(batch.sparse).to(self._device).t().reshape(-1)
        ids = KeyedJaggedTensor(KEYS, values, lengths=self._lengths, offsets=self._offsets)
        self._optimizer.zero_grad()
        loss: torch.Tensor = self.model(dense, ids, labels)
        torch.autograd.backward(loss)
        self._optimizer.step()
        if isinstance(self.model, DMPCollection):
            self.model.sync()
        return loss.detach()

    def tables(self) -> dict[int, NDArray[np.float32]]:
        """Copies of the tables [rows, D] that this rank holds."""
        return {table: weights.cpu().numpy().copy() for table, weights in self._held().items()}

    def _distribute(self, model: Recommender, owners: list[int]) -> DistributedModelParallel:
        workload, device = self._workload, self._device
        shards = workload.ranks // workload.replicas
        placed = {name: table_wise(rank=owner) for name, owner in zip(NAMES, owners, strict=True)}
        sharder = EmbeddingBagCollectionSharder()
        plan = construct_module_sharding_plan(
            model.embeddings, placed, sharder=sharder, local_size=shards, world_size=shards, device_type=device.type
        )
        whole = ShardingPlan({"embeddings": plan})
        if workload.replicas == 1:
            environment = ShardingEnv.from_process_group(dist.group.WORLD)
            return DistributedModelParallel(model, environment, device, plan=whole, sharders=[sharder])
        collection = DMPCollection if device.type == "cuda" else CpuCollection
        return collection(
            module=model,
            device=device,
            plan=whole,
            world_size=workload.ranks,
            sharding_group_size=shards,
            global_pg=dist.group.WORLD,
            sharders=[sharder],
        )

    def _write(self, workload: Workload) -> None:
        for table, weights in self._held().items():
            weights.copy_(workload.initial_rows(table, 0, workload.rows))

    def _held(self) -> dict[int, torch.Tensor]:
        """Live weights of the tables on this rank."""
        held = {}
        for name, value in self.model.state_dict().items():
            if ".embedding_bags." not in name:
                continue
            sharded = value.to_local() if hasattr(value, "to_local") else value
            shards = sharded.local_shards()
            for shard in shards:
                held[NAMES.index(name.split(".")[-2])] = (shard.tensor if hasattr(shard, "tensor") else shard).detach()
        return held


def _keep_quiet() -> None:
    """Silence what TorchRec and DDP log and warn of in every run, on the root logger too."""
    for name in (None, "torch.fx._symbolic_trace"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, message=".*broadcast_buffers")


def _embeddings(workload: Workload) -> nn.Module:
    """26 tables on the meta device, their optimizer fused into the backward."""
    tables = [
        torchrec.EmbeddingBagConfig(name=name, embedding_dim=workload.dim, num_embeddings=workload.rows, feature_names=[key])
        for name, key in zip(NAMES, KEYS, strict=True)
    ]
    collection = torchrec.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    settings: dict[str, Any] = {"lr": workload.lr}
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD
    if workload.optimizer == "rowwise_adagrad":
        optimizer, settings = torchrec.optim.RowWiseAdagrad, settings | {"eps": workload.eps}
    apply_optimizer_in_backward(optimizer, collection.parameters(), settings)
    return collection
