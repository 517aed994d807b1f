"""Criteo-like rows with a planted click model, so that the best reachable quality is known.

The click probability of a row is the logistic function of

    bias + Σ_j w_j · x_j + Σ_f effect_f(id_f)

with x the 13 dense columns as the model sees them (missing is −1 there) and one effect for every id of the 26 categories. Ids
follow a bounded Zipf law. Effects shrink with an id's rank of popularity, and tables differ in weight: a rare id is seen too
seldom to be learned in one pass, so strength that sat there would only be noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats.sampling import DiscreteGuideTable

from meshrec.data.columns import MISSING_ROW, Rows, transform_counts
from meshrec.data.store import Optimum
from meshrec.data.writer import StoreWriter
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES, SyntheticDataset
from meshrec.measure.quality import quality

CHUNK_ROWS = 32_768
"""Rows that share a random stream. Part of the generator: another number gives other data."""
CALIBRATION_CHUNKS = 4
"""Rows, in chunks, that the click model is scaled on: enough for a mean click probability within 0.001."""
CATEGORY_SHARE = 0.5
"""Part of the planted logit's variance that the categories carry; the dense columns carry the rest."""
HEAD_IDS = 20.0
"""Popularity rank at which an effect's standard deviation has halved."""
TABLE_DECAY = 0.5
"""Ratio of the standard deviations that two successive tables contribute."""
LARGEST_COUNT = 1e9
_MODEL, _ROWS, _CALIBRATION = range(3)
"""What a random stream is for."""


@dataclass(frozen=True)
class Planted:
    """The click model and the laws of the columns, drawn from the data set's seed."""

    dataset: SyntheticDataset
    popularity: dict[int, DiscreteGuideTable]
    """Number of ids → bounded Zipf law over popularity ranks 0 … ids − 1."""
    row_of_rank: list[NDArray[np.int32]]
    """Each table's permutation: popularity rank → table row 1 … rows − 1. Row 0 is missing."""
    effect_of_rank: list[NDArray[np.float32]]
    """Each table's effects on the logit by popularity rank; the last entry is that of a missing field."""
    dense_location: NDArray[np.float64]
    """Mean of the logarithm of each count, [13]."""
    dense_spread: NDArray[np.float64]
    """Standard deviation of the logarithm of each count, [13]."""
    dense_weight: NDArray[np.float64]
    """w, [13]."""
    bias: float

    def chunk(self, index: int) -> tuple[Rows, NDArray[np.float64]]:
        """Rows of one chunk and the logits of their true click probabilities, float64 [CHUNK_ROWS]."""
        rng = _rng(self.dataset.seed, _ROWS, index)
        dense = self.dense_columns(rng)
        sparse, effect = self.sparse_columns(rng)
        logit = self.bias + dense @ self.dense_weight + effect
        labels = (rng.random(CHUNK_ROWS) < expit(logit)).astype(np.float32)
        return Rows(labels, dense, sparse), logit

    def dense_columns(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the dense columns of a chunk, float32 [CHUNK_ROWS, 13]: heavy-tailed counts, transformed as real ones are."""
        logs = rng.standard_normal((CHUNK_ROWS, DENSE_FEATURES)) * self.dense_spread + self.dense_location
        counts = np.minimum(np.exp(logs), LARGEST_COUNT).astype(np.int64)
        return transform_counts(counts, rng.random(counts.shape, dtype=np.float32) < self.dataset.missing_rate)

    def sparse_columns(self, rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Draw the sparse columns of a chunk, int32 [CHUNK_ROWS, 26], and the sum of their effects, float64 [CHUNK_ROWS]."""
        sparse = np.empty((CHUNK_ROWS, CATEGORICAL_FEATURES), np.int32)
        logit = np.zeros(CHUNK_ROWS)
        for table, rows in enumerate(self.dataset.rows_of_tables):
            # the stubs know no random_state beside a size
            ranks = self.popularity[rows - 1].rvs(CHUNK_ROWS, random_state=rng)  # type: ignore[call-overload]
            missing = rng.random(CHUNK_ROWS, dtype=np.float32) < self.dataset.missing_rate
            sparse[:, table] = np.where(missing, MISSING_ROW, self.row_of_rank[table][ranks])
            logit += self.effect_of_rank[table][np.where(missing, rows - 1, ranks)]
        return sparse, logit


def plant(dataset: SyntheticDataset) -> Planted:
    """Draw the click model from the data set's seed; scale it to `strength` and solve its bias for `click_rate`."""
    rng = _rng(dataset.seed, _MODEL, 0)
    tables = dataset.rows_of_tables
    raw = Planted(
        dataset=dataset,
        popularity={rows - 1: _bounded_zipf(rows - 1, dataset.zipf_exponent) for rows in set(tables)},
        row_of_rank=[(1 + rng.permutation(rows - 1)).astype(np.int32) for rows in tables],
        effect_of_rank=[_effects(rng, rows - 1) * np.float32(TABLE_DECAY**table) for table, rows in enumerate(tables)],
        dense_location=rng.uniform(0.0, 1.5, DENSE_FEATURES),
        dense_spread=rng.uniform(0.8, 1.6, DENSE_FEATURES),
        dense_weight=rng.standard_normal(DENSE_FEATURES),
        bias=0.0,
    )
    return _calibrated(raw)


def _bounded_zipf(ids: int, exponent: float) -> DiscreteGuideTable:
    """Law of popularity ranks: P(rank = r) ∝ (r + 1)^−exponent for 0 ≤ r < ids."""
    weights = np.arange(1, ids + 1, dtype=np.float64) ** -exponent
    return DiscreteGuideTable(weights / weights.sum())


def _effects(rng: np.random.Generator, ids: int) -> NDArray[np.float32]:
    """Effects of the ids by popularity rank and, last, of a missing field, [ids + 1]; their scale is arbitrary."""
    spread = 1 / (1 + np.arange(ids) / HEAD_IDS)
    effects: NDArray[np.float64] = rng.standard_normal(ids + 1) * np.append(spread, 1.0)
    return effects.astype(np.float32)


def _calibrated(raw: Planted) -> Planted:
    """Fix the two parts' standard deviations and the mean click probability on rows that are in no data set."""
    streams = [_rng(raw.dataset.seed, _CALIBRATION, index) for index in range(CALIBRATION_CHUNKS)]
    dense = np.concatenate([raw.dense_columns(rng) @ raw.dense_weight for rng in streams])
    sparse = np.concatenate([raw.sparse_columns(rng)[1] for rng in streams])
    share = CATEGORY_SHARE if sparse.std() > 0 else 0.0  # tables of one id say nothing when no field is missing
    dense_scale = raw.dataset.strength * np.sqrt(1 - share) / dense.std()
    sparse_scale = raw.dataset.strength * np.sqrt(share) / (sparse.std() or 1.0)
    logit = dense * dense_scale + sparse * sparse_scale

    def excess(bias: float) -> float:
        return float(expit(bias + logit).mean()) - raw.dataset.click_rate

    reach = 40.0 + float(np.abs(logit).max())
    return replace(
        raw,
        effect_of_rank=[effects * np.float32(sparse_scale) for effects in raw.effect_of_rank],
        dense_weight=raw.dense_weight * dense_scale,
        bias=float(brentq(excess, -reach, reach)),
    )


def generate(planted: Planted, rows: int) -> Iterator[tuple[Rows, NDArray[np.float64]]]:
    """Batches of rows with their true logits, `rows` in all. A prefix doesn't depend on how many follow."""
    for start in range(0, rows, CHUNK_ROWS):
        batch, logit = planted.chunk(start // CHUNK_ROWS)
        wanted = slice(0, rows - start)
        yield batch[wanted], logit[wanted]


def write_synthetic(dataset: SyntheticDataset, writer: StoreWriter) -> Optimum | None:
    """Write the training rows and then the evaluation rows; returns the best reachable quality on the latter.

    It is the quality of the true click probabilities on the labels that were drawn from them, normalised by the entropy of the
    evaluation rows' own click rate: what a model that knew the truth would score, not an expectation over other labels.
    None where it is not defined, because the evaluation rows hold only clicks or none.
    """
    logits, labels = [], []
    for rows, logit in generate(plant(dataset), dataset.train_samples + dataset.eval_samples):
        evaluation = slice(max(0, dataset.train_samples - writer.rows), None)
        logits.append(logit[evaluation])
        labels.append(rows.labels[evaluation])
        writer.append(rows)
    clicks = np.concatenate(labels)
    if clicks.min() == clicks.max():
        return None
    best = quality(np.concatenate(logits), clicks)
    return Optimum(logloss=best.logloss, ne=best.ne, auc=best.auc)


def _rng(seed: int, purpose: int, index: int) -> np.random.Generator:
    """An independent stream for each purpose and chunk. SFC64 is NumPy's fastest generator."""
    key = (abs(seed), int(seed < 0), purpose, index)  # SeedSequence takes no negative number
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))
