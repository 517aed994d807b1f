"""fbgemm's table-batched embeddings, with the update fused into the backward."""

from typing import Any, Literal, cast

import fbgemm_gpu  # noqa: F401  registers the operators
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from meshrec.embeddings.adagrad import KernelOptimizer
from meshrec.embeddings.kernels.tables import ShardTables
from meshrec.embeddings.plan import TableShard

_CLASSES: dict[Literal["sgd", "rowwise_adagrad"], EmbOptimType] = {
    "sgd": EmbOptimType.EXACT_SGD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


class FbgemmTables(ShardTables):
    """Shards in one table-batched embedding module. Weights start as they come from the allocator: write them before use."""

    def __init__(self, shards: list[TableShard], dim: int, optimizer: KernelOptimizer, device: torch.device) -> None:
        super().__init__(shards, dim, optimizer, device)
        on_gpu = device.type == "cuda"
        place = EmbeddingLocation.DEVICE if on_gpu else EmbeddingLocation.HOST
        compute = ComputeDevice.CUDA if on_gpu else ComputeDevice.CPU
        self._module = SplitTableBatchedEmbeddingBagsCodegen(
            [(shard.rows, dim, place, compute) for shard in shards],
            optimizer=_CLASSES[optimizer.kind],
            learning_rate=optimizer.lr,
            eps=optimizer.eps,
            pooling_mode=PoolingMode.SUM,
            # The other modes rewrite a bad index to 0 in silence, or stop without a name: `train.feed` has checked the ids.
            bounds_check_mode=BoundsCheckMode.NONE,
            device=device,
        )
        self._place: Literal["dev", "host"] = "dev" if on_gpu else "host"
        if self.has_moments:
            self.moments().fill_(optimizer.initial_moment)

    def weights(self) -> torch.Tensor:
        flat = cast(torch.Tensor, getattr(self._module, f"weights_{self._place}"))
        return flat.detach().view(-1, self.dim)

    def moments(self) -> torch.Tensor:
        if not self.has_moments:
            return torch.empty(0)
        return cast(torch.Tensor, getattr(self._module, f"momentum1_{self._place}")).detach().view(-1)

    def lookup(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self._module(indices, offsets))

    def apply(self, rows: torch.Tensor, gradients: torch.Tensor) -> None:
        shard = torch.searchsorted(self.first_rows, rows, right=True) - 1
        counts = torch.bincount(shard, minlength=len(self.shards))
        bags = int(counts.max())
        # The kernel wants equally many bags for each shard: bag j of a shard holds the shard's j-th row, or nothing.
        filled = torch.arange(bags, device=rows.device) < counts[:, None]
        offsets = torch.nn.functional.pad(filled.flatten().cumsum(0), (1, 0))
        by_bag = gradients.new_zeros(len(self.shards), bags, self.dim)
        by_bag[filled] = gradients
        pooled = self.lookup(rows - self.first_rows[shard], offsets)
        torch.autograd.backward(pooled, by_bag.transpose(0, 1).reshape(bags, -1))

    def live(self) -> dict[str, Any]:
        arguments = self._module.optimizer_args
        learning_rate = getattr(self._module, "learning_rate_tensor", None)
        return {
            "kernel": f"{type(self._module).__module__.split('.')[0]}.{type(self._module).__name__}",
            "optimizer": self._module.optimizer.name,
            "lr": float(learning_rate) if learning_rate is not None else float(arguments.learning_rate),
            "eps": float(arguments.eps),
            "weight_dtype": str(self.weights().dtype).removeprefix("torch."),
            "device": self.weights().device.type,
        }
