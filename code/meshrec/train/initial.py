"""Initial weights, the same for every cell of a seed whatever its mesh, and their digest."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from meshrec.embeddings.engine import InitialRows, ShardedEmbeddings
from meshrec.experiment.schema import Model
from meshrec.measure.digest import add, digest, digest_rows
from meshrec.models import ClickModel, make_model


def initial_rows(seed: int, table_rows: list[int], dims: list[int]) -> InitialRows:
    """Embedding weights by table and row, uniform in ±1/√rows as in the DLRM reference."""

    def rows(table: int, start: int, stop: int) -> torch.Tensor:
        bound = 1 / math.sqrt(table_rows[table])
        generator = torch.Generator().manual_seed(
            int(np.random.SeedSequence([seed, table]).generate_state(1, np.uint64)[0] >> 1)
        )
        return torch.empty(table_rows[table], dims[table]).uniform_(-bound, bound, generator=generator)[start:stop]

    return rows


def initial_model(seed: int, settings: Model) -> ClickModel:
    """The dense model with its initial weights, on the CPU, without touching the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_model(settings)


def tables_digest(embeddings: ShardedEmbeddings) -> int:
    """Digest of the live rows on this rank; the sum over a sharding group is that of all tables, however they are sharded."""
    shapes = embeddings.plan.tables
    first = np.concatenate([[0], np.cumsum([shape.rows * shape.dim for shape in shapes])])
    total = 0
    for shard, live in embeddings.held():
        # not numpy(): PyTorch never resizes a storage again that it has shown to NumPy so, and sharded storage has to
        weights: NDArray[np.float32] = np.from_dlpack(live.cpu())  # type: ignore[assignment]
        dim, position = shapes[shard.table].dim, int(first[shard.table])
        if shard.width == dim:
            total = add(total, digest_rows(position + shard.start * dim, weights))
        else:
            places = np.arange(shard.start, shard.stop)[:, None] * dim + np.arange(shard.left, shard.right) + position
            total = add(total, digest(places.ravel(), np.ascontiguousarray(weights).view(np.uint32).ravel()))
    return total


def dense_digest(flat: torch.Tensor, table_rows: list[int], dims: list[int]) -> int:
    """Digest of the dense parameters, which stand behind all tables."""
    numbers = sum(rows * dim for rows, dim in zip(table_rows, dims, strict=True))
    return digest_rows(numbers, flat.detach().cpu().numpy())
