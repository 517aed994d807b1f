"""Criteo-like rows with a planted click model, so that the best reachable quality is known.

The click probability of a row is the logistic function of

    bias + Σ_j w_j · x_j + Σ_f effect_f(id_f)

with x the 13 dense columns as the model sees them (missing is −1 there) and one effect for every id of the 26 categories. Ids
follow a bounded Zipf law. Effects shrink with an id's rank of popularity, and tables differ in weight: a rare id is seen too
seldom to be learned in one pass, so strength that sat there would only be noise.

A row depends on the settings and on its place alone: chunks of rows have random streams of their own, so that they are made in
any order, on any number of threads, and an interrupted build goes on where it was.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from meshrec.data.coherence import solve_bias
from meshrec.data.columns import Rows, transform_counts
from meshrec.data.heads import with_asked, without_asked
from meshrec.data.zipf import BoundedZipf, exponent_of
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES, SyntheticDataset

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
_MODEL, _ROWS, _CALIBRATION, _NOISE = range(4)
"""What a random stream is for."""


@dataclass(frozen=True)
class Planted:
    """The click model and the laws of the columns, drawn from the data set's seed."""

    dataset: SyntheticDataset
    popularity: list[BoundedZipf]
    """Each table's law of popularity ranks 0 … rows − 2."""
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

    @property
    def flip_rate(self) -> float:
        """Probability that label noise turns a label into the other one."""
        return self.dataset.label_noise.flip_rate if self.dataset.label_noise else 0.0

    def chunk(self, index: int) -> tuple[Rows, NDArray[np.float64]]:
        """Rows of one chunk and the logits of their true click probabilities, label noise included, float64 [CHUNK_ROWS]."""
        rng = _rng(self.dataset.seed, _ROWS, index)
        dense = self.dense_columns(rng)
        sparse, effect = self.sparse_columns(rng)
        logit = self.bias + dense @ self.dense_weight + effect
        labels = (rng.random(CHUNK_ROWS) < expit(logit)).astype(np.float32)
        if self.dataset.label_noise is not None:
            labels, logit = self.noisy(labels, index), noisy_logit(logit, self.flip_rate)
        return Rows(labels, dense, sparse), logit

    def calibration_rows(self) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
        """Rows that are in no data set: the dense columns' part of each logit [n], ids [n, 26], and these' part [n]."""
        streams = [_rng(self.dataset.seed, _CALIBRATION, index) for index in range(CALIBRATION_CHUNKS)]
        dense = [self.dense_columns(rng) @ self.dense_weight for rng in streams]
        sparse = [self.sparse_columns(rng) for rng in streams]
        return np.concatenate(dense), np.concatenate([ids for ids, _ in sparse]), np.concatenate([logit for _, logit in sparse])

    def noisy(self, labels: NDArray[np.float32], index: int) -> NDArray[np.float32]:
        """Labels of a chunk after noise, from a stream of its own: without noise the same rows have the same other labels."""
        noise = self.dataset.label_noise
        assert noise is not None
        rng = _rng(self.dataset.seed, _NOISE, index)
        replaced = rng.random(CHUNK_ROWS) < noise.rate
        other = (rng.random(CHUNK_ROWS) < 0.5).astype(np.float32) if noise.kind == "coin" else 1 - labels
        return np.where(replaced, other, labels)

    def dense_columns(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the dense columns of a chunk, float32 [CHUNK_ROWS, 13]: heavy-tailed counts, transformed as real ones are."""
        logs = rng.standard_normal((CHUNK_ROWS, DENSE_FEATURES)) * self.dense_spread + self.dense_location
        counts = np.minimum(np.exp(logs), LARGEST_COUNT).astype(np.int64)
        return transform_counts(counts, rng.random(counts.shape, dtype=np.float32) < self.dataset.missing_rate)

    def sparse_columns(self, rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Draw the sparse columns of a chunk, int32 [CHUNK_ROWS, 26], and the sum of their effects, float64 [CHUNK_ROWS]."""
        sparse = np.empty((CHUNK_ROWS, CATEGORICAL_FEATURES), np.int32)
        logit = np.zeros(CHUNK_ROWS)
        for table, law in enumerate(self.popularity):
            uniform = rng.random(CHUNK_ROWS)
            missing = rng.random(CHUNK_ROWS, dtype=np.float32) < self.dataset.missing_rate
            law.draw(uniform, missing, self.row_of_rank[table], self.effect_of_rank[table], sparse[:, table], logit)
        return sparse, logit


def plant(dataset: SyntheticDataset) -> Planted:
    """Draw the click model from the data set's seed; scale it to `strength` and solve its bias for `click_rate`."""
    rng = _rng(dataset.seed, _MODEL, 0)
    tables = dataset.rows_of_tables
    raw = Planted(
        dataset=dataset,
        popularity=_laws(dataset),
        row_of_rank=[(1 + rng.permutation(rows - 1)).astype(np.int32) for rows in tables],
        effect_of_rank=[_effects(rng, rows - 1) * np.float32(TABLE_DECAY**table) for table, rows in enumerate(tables)],
        dense_location=rng.uniform(0.0, 1.5, DENSE_FEATURES),
        dense_spread=rng.uniform(0.8, 1.6, DENSE_FEATURES),
        dense_weight=rng.standard_normal(DENSE_FEATURES),
        bias=0.0,
    )
    return _calibrated(raw)


def exponents_of(dataset: SyntheticDataset) -> list[float]:
    """Zipf exponent of each table, worked out from the head share where that is given."""
    if dataset.exponents is not None:
        return dataset.exponents
    present = 1 - dataset.missing_rate
    tables = zip(dataset.rows_of_tables, dataset.head_shares, strict=True)
    return [exponent_of(rows - 1, max(share / present, 1 / (rows - 1))) if rows > 2 else 0.0 for rows, share in tables]


def _laws(dataset: SyntheticDataset) -> list[BoundedZipf]:
    """Each table's popularity law; tables that are alike share theirs."""
    keys = list(zip(dataset.rows_of_tables, exponents_of(dataset), strict=True))
    laws = {key: BoundedZipf.of(key[0] - 1, key[1]) for key in set(keys)}
    return [laws[key] for key in keys]


def noisy_logit(logit: NDArray[np.float64], flip_rate: float) -> NDArray[np.float64]:
    """Logits of a click after labels were flipped at a rate, from those before it: p becomes f + (1 − 2f)·p."""
    if flip_rate == 0:
        return logit
    click = flip_rate + (1 - 2 * flip_rate) * expit(logit)
    other = flip_rate + (1 - 2 * flip_rate) * expit(-logit)  # 1 − click would lose small ones
    return np.log(click) - np.log(other)


def _effects(rng: np.random.Generator, ids: int) -> NDArray[np.float32]:
    """Effects of the ids by popularity rank and, last, of a missing field, [ids + 1]; their scale is arbitrary."""
    spread = 1 / (1 + np.arange(ids) / HEAD_IDS)
    effects: NDArray[np.float64] = rng.standard_normal(ids + 1) * np.append(spread, 1.0)
    return effects.astype(np.float32)


def _calibrated(raw: Planted) -> Planted:
    """Fix the two parts' standard deviations and the mean click probability on rows that are in no data set."""
    raw = without_asked(raw)
    dense, ids, sparse = raw.calibration_rows()
    share = CATEGORY_SHARE if sparse.std() > 0 else 0.0  # tables of one id say nothing when no field is missing
    dense_scale = raw.dataset.strength * np.sqrt(1 - share) / dense.std()
    sparse_scale = raw.dataset.strength * np.sqrt(share) / (sparse.std() or 1.0)
    logit = dense * dense_scale + sparse * sparse_scale
    scaled = replace(
        raw,
        effect_of_rank=[effects * np.float32(sparse_scale) for effects in raw.effect_of_rank],
        dense_weight=raw.dense_weight * dense_scale,
        bias=solve_bias(logit, raw.dataset.click_rate),
    )
    return with_asked(scaled, logit, ids)


def _rng(seed: int, purpose: int, index: int) -> np.random.Generator:
    """An independent stream for each purpose and chunk. SFC64 is NumPy's fastest generator."""
    key = (abs(seed), int(seed < 0), purpose, index)  # SeedSequence takes no negative number
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))
