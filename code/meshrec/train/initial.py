"""Initial weights, the same for every cell of a seed whatever its mesh, and their digest."""

import math

import numpy as np
import torch

from meshrec.embeddings.engine import InitialRows, ShardedEmbeddings
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DlrmModel
from meshrec.measure.digest import add, digest_rows
from meshrec.models.dlrm import Dlrm


def initial_rows(seed: int, table_rows: list[int], dim: int) -> InitialRows:
    """Embedding weights by table and row, uniform in ±1/√rows as in the DLRM reference."""

    def rows(table: int, start: int, stop: int) -> torch.Tensor:
        bound = 1 / math.sqrt(table_rows[table])
        generator = torch.Generator().manual_seed(
            int(np.random.SeedSequence([seed, table]).generate_state(1, np.uint64)[0] >> 1)
        )
        return torch.empty(table_rows[table], dim).uniform_(-bound, bound, generator=generator)[start:stop]

    return rows


def initial_model(seed: int, settings: DlrmModel) -> Dlrm:
    """The dense model with its initial weights, on the CPU, without touching the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Dlrm(settings, CATEGORICAL_FEATURES)


def tables_digest(embeddings: ShardedEmbeddings) -> int:
    """Digest of the live rows on this rank; the sum over a sharding group is that of all tables, however they are sharded."""
    dim = embeddings.tables.dim
    weights = embeddings.tables.weights().cpu().numpy()
    first_row_of = np.concatenate([[0], np.cumsum(embeddings.plan.table_rows)])
    total, row = 0, 0
    for shard in embeddings.shards:
        position = int(first_row_of[shard.table] + shard.start) * dim
        total = add(total, digest_rows(position, weights[row : row + shard.rows]))
        row += shard.rows
    return total


def dense_digest(flat: torch.Tensor, table_rows: list[int], dim: int) -> int:
    """Digest of the dense parameters, which stand behind all tables."""
    return digest_rows(sum(table_rows) * dim, flat.detach().cpu().numpy())
