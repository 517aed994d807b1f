"""fbgemm's table-batched embeddings, with the update fused into the backward."""

from typing import Any, Literal, cast

import fbgemm_gpu  # noqa: F401  registers the operators
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from meshrec.embeddings.kernels.jagged import Jagged, JaggedTables
from meshrec.embeddings.optimizers import RowOptimizer
from meshrec.embeddings.plan import PlanError, TableShard
from meshrec.embeddings.rows import RowGradients

_CLASSES = {"sgd": EmbOptimType.EXACT_SGD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}


class FbgemmTables(JaggedTables):
    """Shards in one table-batched embedding module. Weights start as they come from the allocator: write them before use."""

    def __init__(self, shards: list[TableShard], optimizer: RowOptimizer, device: torch.device) -> None:
        super().__init__(shards, optimizer, device)
        if optimizer.kind not in _CLASSES or optimizer.lagged:
            raise PlanError(
                f"fbgemm has no {optimizer.kind}{' of lagging moments' * optimizer.lagged}: use kernel numba or torch"
            )
        on_gpu = device.type == "cuda"
        place = EmbeddingLocation.DEVICE if on_gpu else EmbeddingLocation.HOST
        compute = ComputeDevice.CUDA if on_gpu else ComputeDevice.CPU
        self._module = SplitTableBatchedEmbeddingBagsCodegen(
            [(shard.rows, self.dim, place, compute) for shard in shards],
            optimizer=_CLASSES[optimizer.kind],
            learning_rate=optimizer.lr,
            eps=optimizer.eps,
            pooling_mode=PoolingMode.SUM,
            # The other modes rewrite a bad index to 0 in silence, or stop without a name: `train.feed` has checked the ids.
            bounds_check_mode=BoundsCheckMode.NONE,
            device=device,
        )
        self._place: Literal["dev", "host"] = "dev" if on_gpu else "host"
        self._looked_up: tuple[torch.Tensor, torch.Tensor] | None = None
        if optimizer.has_moments:
            self.states()["moments"].fill_(optimizer.initial_moment)

    def weights(self) -> torch.Tensor:
        flat = cast(torch.Tensor, getattr(self._module, f"weights_{self._place}"))
        return flat.detach().view(-1, self.dim)

    def states(self) -> dict[str, torch.Tensor]:
        if not self.optimizer.has_moments:
            return {}
        return {"moments": cast(torch.Tensor, getattr(self._module, f"momentum1_{self._place}")).detach().view(-1)}

    def lookup(self, ids: torch.Tensor) -> torch.Tensor:
        pooled = self._forward(self._bags(ids))
        # the update is the backward of this very lookup, if the next call asks for it
        self._looked_up = (ids, pooled) if torch.is_grad_enabled() else None
        return pooled.detach()

    def update(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        remembered, self._looked_up = self._looked_up, None
        pooled = remembered[1] if remembered and remembered[0] is ids else self._forward(self._bags(ids))
        torch.autograd.backward(pooled, gradients)

    def apply(self, summed: RowGradients, mean_squares: torch.Tensor | None = None) -> None:
        if mean_squares is not None:
            raise PlanError("fbgemm takes a row's second moment over the columns it holds: use kernel numba or torch")
        rows = summed.rows
        if not rows.numel():  # of a kernel whose rows nobody asked for
            return
        shard = torch.searchsorted(self.first_rows, rows, right=True) - 1
        counts = torch.bincount(shard, minlength=len(self.shards))
        bags = int(counts.max())
        # The kernel wants equally many bags for each shard: bag j of a shard holds the shard's j-th row, or nothing.
        filled = torch.arange(bags, device=rows.device) < counts[:, None]
        offsets = torch.nn.functional.pad(filled.flatten().cumsum(0), (1, 0))
        by_bag = summed.gradients.new_zeros(len(self.shards), bags, self.dim)
        by_bag[filled] = summed.gradients
        pooled = self._forward(Jagged(rows - self.first_rows[shard], offsets))
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

    def _forward(self, jagged: Jagged) -> torch.Tensor:
        return cast(torch.Tensor, self._module(jagged.rows, jagged.offsets))
