"""The model as torch.distributed.checkpoint sees it: tables as wholes of which each rank holds shards, whatever the plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from meshrec.embeddings.engine import ShardedEmbeddings
from meshrec.embeddings.kernels import ShardTables
from meshrec.embeddings.local import RankTables
from meshrec.embeddings.plan import TableShard
from meshrec.models.replicated import ReplicatedDense


@dataclass(frozen=True)
class Part:
    """A live tensor that is a block of a larger one."""

    offsets: tuple[int, ...]
    tensor: torch.Tensor


class TableTensor(torch.Tensor):
    """Weights or a state of one table, as the parts that this rank holds. Equal parts of several ranks are stored once.

    It is a tensor without numbers of its own, since torch.distributed.checkpoint asks tensors alone for their parts; the three
    methods with underscores are its protocol for that.
    """

    parts: list[Part]

    @staticmethod
    def __new__(cls, size: tuple[int, ...]) -> Self:
        """A whole of this size, without any part yet."""
        whole = torch.Tensor._make_wrapper_subclass(cls, size, dtype=torch.float32)
        whole.parts = []
        return whole

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func}: a table's parts have numbers, the whole has none")

    def __create_write_items__(self, fqn: str, _: object) -> list[WriteItem]:
        return [
            WriteItem(
                index=MetadataIndex(fqn, torch.Size(part.offsets)),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(_chunk(part), TensorProperties.create_from_tensor(part.tensor), self.size()),
            )
            for part in self.parts
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [_chunk(part) for part in self.parts]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        return next(part.tensor for part in self.parts if torch.Size(part.offsets) == index.offset)


def _chunk(part: Part) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(part.offsets), sizes=part.tensor.size())


def table_tensors(embeddings: ShardedEmbeddings, twin: int) -> dict[str, TableTensor]:
    """Live weights and states of all tables of a local twin, by `table.NUMBER.NAME`."""
    found: dict[str, TableTensor] = {}
    for tables in _kernels(embeddings, twin):
        for shard, first in zip(tables.shards, tables.first_rows.tolist(), strict=True):
            for name, live in (("weights", tables.weights()), *tables.states().items()):
                columns = name in ("weights", "velocity")
                key = f"table.{shard.table}.{name}"
                whole = found.setdefault(key, TableTensor(_size(shard, live, columns)))
                offsets = (shard.start, shard.left if columns else 0)[: live.dim()]
                whole.parts.append(Part(offsets, live[first : first + shard.rows]))
    return found


def _kernels(embeddings: ShardedEmbeddings, twin: int) -> Iterator[ShardTables]:
    replicated: list[RankTables] = [embeddings.whole.twins[twin]] if embeddings.whole else []
    for tables in (embeddings.twins[twin], *replicated):
        yield from tables.kernels


def _size(shard: TableShard, live: torch.Tensor, columns: bool) -> tuple[int, ...]:
    if live.dim() == 1:
        return (shard.table_rows,)
    return shard.table_rows, shard.table_dim if columns else live.shape[1]


def dense_tensors(dense: ReplicatedDense) -> dict[str, torch.Tensor]:
    """Dense parameters and the state of their optimizer; the same on every rank."""
    state = dense.optimizer.state[dense.flat]
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    return {"dense.parameters": dense.flat.detach(), **{f"dense.{name}": value for name, value in tensors.items()}}
