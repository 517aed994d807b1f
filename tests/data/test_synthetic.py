"""Synthetic rows: the laws they are asked to follow, and a planted optimum that really is one."""

import numpy as np
import pytest
from scipy.special import expit

from meshrec.data.prepare import prepare
from meshrec.data.synthetic import CHUNK_ROWS, generate, plant
from meshrec.experiment.schema import SyntheticDataset
from meshrec.measure.quality import quality


def dataset(**settings) -> SyntheticDataset:
    base = {"kind": "synthetic", "train_samples": 102_400, "eval_samples": 32_768, "table_rows": 2000, "strength": 1.5}
    return SyntheticDataset.model_validate(base | settings)


def drawn(settings: SyntheticDataset, rows: int):
    """labels, dense, sparse and logits of the first rows."""
    batches = list(generate(plant(settings), rows))
    columns = [np.concatenate([getattr(batch, name) for batch, _ in batches]) for name in ("labels", "dense", "sparse")]
    return *columns, np.concatenate([logit for _, logit in batches])


@pytest.fixture(scope="module")
def sample():
    """135,168 rows of the default laws."""
    return drawn(dataset(), 135_168)


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path):
    small = {"train_samples": 1000, "eval_samples": 500}
    hashes = [
        prepare(dataset(seed=seed, **small), tmp_path / str(i)).manifest.data_hash for i, seed in enumerate((5, 5, 6, -5))
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_more_rows_continue_the_same_rows():
    few, many = drawn(dataset(), 100), drawn(dataset(), CHUNK_ROWS + 50)
    for short, long in zip(few, many, strict=True):
        np.testing.assert_array_equal(short, long[:100])


@pytest.mark.parametrize("rate", [0.03, 0.25, 0.6])
@pytest.mark.parametrize("strength", [0.0, 1.5])
def test_click_rate_and_strength_are_as_asked(rate, strength):
    labels, _, _, logits = drawn(dataset(click_rate=rate, strength=strength), 100_000)
    assert expit(logits).mean() == pytest.approx(rate, abs=0.005)
    assert labels.mean() == pytest.approx(rate, abs=0.007)
    assert logits.std() == pytest.approx(strength, rel=0.03, abs=1e-9)


def test_labels_follow_the_probabilities(sample):
    labels, _, _, logits = sample
    order = np.argsort(logits)
    for bucket in np.array_split(order, 20):
        probability = expit(logits[bucket]).mean()
        error = np.sqrt(probability * (1 - probability) / bucket.size)
        assert abs(labels[bucket].mean() - probability) < 5 * error


@pytest.mark.parametrize("exponent", [0.7, 1.05, 1.6])
def test_ids_follow_zipfs_law(exponent):
    _, _, sparse, _ = drawn(dataset(zipf_exponent=exponent, missing_rate=0.0), 65_536)
    counts = np.bincount(sparse[:, 3], minlength=2000)
    assert counts[0] == 0, "no field is missing"
    frequent = np.sort(counts)[::-1][:30]
    slope = np.polyfit(np.log(np.arange(1, 31)), np.log(frequent), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.05)
    expected = 1 / np.sum(np.arange(1, 2000) ** -exponent)
    assert frequent[0] / 65_536 == pytest.approx(expected, rel=0.06)


def test_frequency_is_not_sorted_by_row(sample):
    _, _, sparse, _ = sample
    head = [set(np.argsort(np.bincount(sparse[:, table], minlength=2000)[1:])[::-1][:10].tolist()) for table in range(26)]
    assert len({frozenset(rows) for rows in head}) == 26, "each table has its own permutation"
    assert 700 < np.mean([row for rows in head for row in rows]) < 1300


def test_missing_fields_are_apart_and_as_frequent_as_asked(sample):
    _, dense, sparse, _ = sample
    np.testing.assert_allclose((dense == -1).mean(axis=0), 0.1, atol=0.005)
    np.testing.assert_allclose((sparse == 0).mean(axis=0), 0.1, atol=0.005)
    assert dense[dense != -1].min() == 0
    counts = np.expm1(dense[dense >= 0].astype(np.float64))
    np.testing.assert_allclose(counts, np.round(counts), rtol=1e-5)
    assert counts.max() > 200 * np.median(counts), "heavy tail"
    assert (dense.dtype, sparse.dtype) == (np.float32, np.int32)


def test_rows_fit_tables_of_any_size():
    rows = [2, 3, 5, 10_000] + [7] * 22
    _, _, sparse, logits = drawn(dataset(table_rows=rows), 40_000)
    assert (sparse.max(axis=0) == np.array(rows) - 1)[[0, 1, 2, 4]].all()
    assert (sparse.max(axis=0) < rows).all()
    assert sparse.min() == 0
    assert np.isfinite(logits).all()


def test_tables_of_one_id_leave_all_strength_to_the_dense_columns():
    _, _, sparse, logits = drawn(dataset(table_rows=2, missing_rate=0.0), 40_000)
    assert (sparse == 1).all()
    assert logits.std() == pytest.approx(1.5, rel=0.03)


def test_manifest_holds_the_quality_of_the_truth(tmp_path):
    settings = dataset(train_samples=40_000, eval_samples=20_000)
    store = prepare(settings, tmp_path / "store")
    labels, _, _, logits = drawn(settings, 60_000)
    best, labels = store.manifest.optimum, labels[40_000:]
    np.testing.assert_array_equal(labels, store.evaluation.labels)
    probability, rate = expit(logits[40_000:]), labels.mean(dtype=np.float64)
    logloss = -np.mean(np.where(labels == 1, np.log(probability), np.log(1 - probability)))
    assert best is not None
    assert best.logloss == pytest.approx(logloss, rel=1e-9)
    assert best.ne == pytest.approx(logloss / -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate)), rel=1e-6)
    pairs = np.random.default_rng(0)
    clicks, others = (pairs.choice(probability[labels == label], 200_000) for label in (1, 0))
    assert best.auc == pytest.approx(np.mean(clicks > others), abs=0.005)


def test_no_perturbed_truth_does_better(sample):
    labels, dense, _, logits = sample
    best, rng = quality(logits, labels), np.random.default_rng(0)
    perturbed = [logits + 0.1, logits - 0.1, logits * 1.1, logits * 0.9, logits + 0.2 * rng.standard_normal(logits.size)]
    perturbed += [logits + 0.1 * (dense[:, field] - dense[:, field].mean()) for field in range(13)]
    assert min(quality(other, labels).logloss for other in perturbed) > best.logloss
    assert quality(logits + rng.standard_normal(logits.size), labels).auc < best.auc


def test_noise_has_nothing_to_learn():
    labels, _, _, logits = drawn(dataset(strength=0.0), 100_000)
    assert quality(logits, labels).ne == pytest.approx(1.0, abs=1e-4)


def learned(labels, dense, sparse, tables: bool) -> float:
    """NE on the last quarter of additive AdaGrad regression, one pass over the rest in batches of 2048."""
    ids, weights, state = sparse + np.arange(26) * 2000, np.zeros(26 * 2000), np.full(26 * 2000, 1e-8)
    inputs = np.column_stack([np.ones(len(labels)), (dense - dense.mean(0)) / dense.std(0)])
    linear, linear_state = np.zeros(14), np.full(14, 1e-8)

    def score(rows: slice) -> np.ndarray:
        return inputs[rows] @ linear + weights[ids[rows]].sum(1) * tables

    train = len(labels) * 3 // 4 // 2048 * 2048
    for start in range(0, train, 2048):
        rows = slice(start, start + 2048)
        error = (expit(score(rows)) - labels[rows]) / 2048
        slope = inputs[rows].T @ error
        linear_state += slope**2
        linear -= 0.1 * slope / np.sqrt(linear_state)
        slopes = np.bincount(ids[rows].ravel(), np.repeat(error, 26), 26 * 2000)
        state += slopes**2
        weights -= 0.1 * slopes / np.sqrt(state)
    held_out = slice(train, None)
    return quality(score(held_out), labels[held_out]).ne


def test_most_of_the_optimum_is_learned_in_one_pass_and_the_categories_matter(sample):
    labels, dense, sparse, logits = sample
    best = quality(logits[101_376:], labels[101_376:]).ne
    everything, no_categories = (learned(labels, dense, sparse, tables) for tables in (True, False))
    assert best < 0.85
    assert everything - best < 0.05
    assert no_categories - everything > 0.05
