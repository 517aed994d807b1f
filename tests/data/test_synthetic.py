"""Synthetic rows: the laws they are asked to follow, and a planted optimum that really is one."""

import re
import tracemalloc

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import expit
from scipy.stats import chisquare

from meshrec.data import optimum, synthetic, zipf
from meshrec.data.columns import DataError
from meshrec.data.planted import CHUNK_ROWS, plant
from meshrec.data.prepare import prepare
from meshrec.data.synthetic import generate
from meshrec.experiment.cells import dataset_id
from meshrec.experiment.schema import SyntheticDataset
from meshrec.measure.quality import quality

GOLDEN = [
    [0, 1466, 1596, 1804, 0, 413],
    [1272, 0, 420, 1085, 492, 0],
    [316, 0, 1596, 1432, 588, 582],
    [1487, 172, 1093, 983, 588, 1504],
]
"""Ids of the first rows in the first tables: behind them are only random numbers and a search, the same on any machine."""


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


# --- popularity --------------------------------------------------------------------------------------------------------


def test_rows_are_those_of_earlier_versions():
    _, _, sparse, _ = drawn(dataset(), 4)
    np.testing.assert_array_equal(sparse[:, :6], GOLDEN)
    assert dataset_id(dataset()) == "synthetic-531c6885c57c32f2", "settings that ask for nothing new keep their folder"


@pytest.mark.parametrize(("ids", "exponent"), [(1, 1.05), (2, 0.0), (7, 4.0), (50_000, 0.9), (11, 0.0), (25, 0.0)])
def test_draws_invert_the_cumulative_law(ids, exponent):
    law = zipf.BoundedZipf.of(ids, exponent)
    rng = np.random.default_rng(0)
    exact = np.concatenate([law.cumulative[:-1], law.cumulative[:-1] / law.cumulative[-1], np.arange(1, ids) / ids])
    edges = np.concatenate([exact, np.nextafter(exact, 0), np.nextafter(exact, 1)])  # where rounding decides
    edges = edges[edges < 1]
    uniform = np.concatenate([rng.random(50_000), edges, [0.0, np.nextafter(1.0, 0.0)]])
    rows, logit = np.empty(len(uniform), np.int32), np.zeros(len(uniform))
    missing = rng.random(len(uniform)) < 0.1
    effects = np.append(np.arange(ids), -5).astype(np.float32)
    law.draw(uniform, missing, (1 + np.arange(ids)).astype(np.int32), effects, rows, logit)
    expected = np.searchsorted(law.cumulative, uniform * law.cumulative[-1])
    np.testing.assert_array_equal(rows, np.where(missing, 0, 1 + expected))
    np.testing.assert_array_equal(logit, np.where(missing, -5.0, expected))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.99, 1.0, 1.05, 3.0])
def test_harmonic_numbers_of_large_tables(exponent):
    assert zipf.harmonic(3_000_000, exponent) == pytest.approx(np.sum(np.arange(1.0, 3_000_001) ** -exponent), rel=1e-12)


def test_the_documented_head_shares_are_right():
    rows = [line.replace(" %", "").split() for line in zipf.__doc__.splitlines() if re.match(r"    [\d.]+ +[\d.]+ %", line)]
    assert len(rows) == 5
    for exponent, *shares in rows:
        for ids, percent in zip((100, 20_000, 10**6), shares, strict=True):
            digits = len(percent.partition(".")[2])
            assert round(100 * zipf.head_share(ids, float(exponent)), digits) == float(percent)


def test_exponent_zero_is_uniform_and_tables_may_differ():
    exponents = [0.0, 2.0] + [1.0] * 24
    _, _, sparse, _ = drawn(dataset(zipf_exponent=exponents, missing_rate=0.0, table_rows=101), 65_536)
    assert chisquare(np.bincount(sparse[:, 0], minlength=101)[1:]).pvalue > 1e-3
    for table, exponent in enumerate(exponents):
        share = np.bincount(sparse[:, table]).max() / 65_536
        assert share == pytest.approx(max(zipf.head_share(100, exponent), 0.011), rel=0.15 if exponent == 0 else 0.04)


def test_a_batch_hits_head_rows_as_often_as_asked(tmp_path):
    shares = [0.3, 0.02, 0.9, 0.001] + [0.1] * 22
    tables = [2000, 50, 3, 2000] + [500] * 22
    settings = dataset(head_share=shares, table_rows=tables, missing_rate=0.05, eval_samples=1)
    store = prepare(settings, tmp_path / "store")
    heads = store.manifest.heads
    assert heads is not None
    assert [head.share for head in heads] == pytest.approx(shares, rel=1e-9)
    hits = (np.asarray(store.train.sparse) == [head.row for head in heads]).sum(axis=0)
    error = np.sqrt(np.array(shares) * (1 - np.array(shares)) * 102_400)
    np.testing.assert_array_less(np.abs(hits - 102_400 * np.array(shares)), 5 * error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_share": 0.1, "zipf_exponent": 1.0}, "not both"),
        ({"head_share": 0.0001, "table_rows": 100}, "table 0 is 0.0001: want at least 0.00909091, where its 99 rows"),
        ({"head_share": [0.1] * 25 + [0.95]}, "table 25 is 0.95: want at least .* less than 0.9, since missing_rate is 0.1"),
        ({"head_share": [0.1] * 25}, "found 25 numbers, want 26"),
        ({"zipf_exponent": [1.0]}, "found 1 numbers, want 26"),
        ({"zipf_exponent": -0.1}, "greater than or equal to 0"),
        ({"head_coherence": [1.0] + [None] * 25}, "less than 1"),
        ({"head_coherence": [0.5]}, "found 1 numbers, want 26"),
        ({"label_noise": {"kind": "coin", "rate": 1.1}}, "less than or equal to 1"),
        ({"label_noise": {"kind": "bias", "rate": 0.1}}, "'coin' or 'flip'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        dataset(**settings)


def test_settings_survive_their_own_json():
    for settings in ({}, {"head_share": 0.1}, {"head_coherence": [0.5] + [None] * 25}, {"zipf_exponent": [0.5] * 26}):
        one = dataset(**settings)
        assert SyntheticDataset.model_validate(one.model_dump(mode="json")) == one


# --- label noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coin", "flip"])
def test_noise_replaces_labels_and_nothing_else(sample, kind):
    clean, dense, sparse, _ = sample
    some, more = (drawn(dataset(label_noise={"kind": kind, "rate": rate}), 135_168) for rate in (0.1, 0.3))
    for noisy in (some, more):
        np.testing.assert_array_equal(noisy[1], dense)
        np.testing.assert_array_equal(noisy[2], sparse)
    changed = [(noisy[0] != clean) for noisy in (some, more)]
    assert [part.mean() for part in changed] == pytest.approx([0.05, 0.15] if kind == "coin" else [0.1, 0.3], abs=0.004)
    assert not (changed[0] & ~changed[1]).any(), "what little noise replaces, more noise replaces too"
    assert abs(changed[1][clean == 1].mean() - changed[1][clean == 0].mean()) < 0.01


@pytest.mark.parametrize("noise", [{"kind": "coin", "rate": 0.3}, {"kind": "flip", "rate": 0.2}, {"kind": "flip", "rate": 0.9}])
def test_the_optimum_knows_the_noise(sample, noise):
    clean = sample[3]
    labels, _, _, logits = drawn(dataset(label_noise=noise), 135_168)
    flips = noise["rate"] / 2 if noise["kind"] == "coin" else noise["rate"]
    np.testing.assert_allclose(expit(logits), flips + (1 - 2 * flips) * expit(clean), rtol=1e-9)
    for bucket in np.array_split(np.argsort(logits), 20):
        probability = expit(logits[bucket]).mean()
        assert abs(labels[bucket].mean() - probability) < 5 * np.sqrt(probability * (1 - probability) / bucket.size)
    best = quality(logits, labels).logloss
    others = [quality(other, labels).logloss for other in (clean, logits * 1.1, logits * 0.9, logits + 0.1, logits - 0.1)]
    assert min(others) > best


def test_fair_coins_have_nothing_to_learn_and_inverted_labels_lose_nothing(tmp_path):
    few = {"train_samples": 1000, "eval_samples": 60_000}
    coins, inverted, clean = (
        prepare(dataset(label_noise=noise, **few), tmp_path / str(i)).manifest.optimum
        for i, noise in enumerate(({"kind": "coin", "rate": 1}, {"kind": "flip", "rate": 1}, None))
    )
    assert (coins.logloss, coins.auc) == pytest.approx((np.log(2), 0.5), abs=1e-9)
    assert (inverted.logloss, inverted.auc) == pytest.approx((clean.logloss, clean.auc), rel=1e-9)


# --- gradient coherence of head rows -----------------------------------------------------------------------------------

WANTED = [0.0, 0.6, 0.3, -0.15, 0.05, 0.0] + [None] * 20
SIGNAL = {"head_share": 0.04, "head_coherence": WANTED, "train_samples": 393_216, "eval_samples": 1024}


@pytest.fixture(scope="module")
def coherent(tmp_path_factory):
    return prepare(dataset(**SIGNAL), tmp_path_factory.mktemp("coherent") / "store")


def hits_of(store, table):
    """Labels of the training rows that hit the head row of a table."""
    return np.asarray(store.train.labels)[np.asarray(store.train.sparse)[:, table] == store.manifest.heads[table].row]


def test_head_rows_have_the_coherence_asked_for(coherent):
    rate = float(np.mean(coherent.train.labels, dtype=np.float64))
    assert rate == pytest.approx(0.25, abs=0.005)
    for table, wanted in enumerate(WANTED[:6]):
        own = hits_of(coherent, table).mean(dtype=np.float64)
        measured = (own - rate) ** 2 / np.mean((hits_of(coherent, table) - rate) ** 2, dtype=np.float64)
        assert measured == pytest.approx(abs(wanted), abs=0.03)
        assert coherent.manifest.heads[table].coherence == pytest.approx(abs(wanted), abs=1e-3)
        assert wanted == 0 or (own > rate) == (wanted > 0)


@pytest.mark.parametrize("table", [0, 1, 2])
def test_moments_of_groups_and_of_all_differ_as_the_theory_says(coherent, table):
    """R = (Kρ + M) / (Kρ + 1), for the gradients of a model that predicts the click rate."""
    batch, groups, head = 512, 4, coherent.manifest.heads[table]
    pulls = (0.25 - np.asarray(coherent.train.labels, np.float64)) * (np.asarray(coherent.train.sparse)[:, table] == head.row)
    by_group = pulls.reshape(-1, groups, batch // groups).sum(axis=2) * groups / batch
    measured = np.mean(by_group**2) / np.mean(by_group.mean(axis=1) ** 2)
    signal = batch * head.share * head.coherence
    assert measured == pytest.approx((signal + groups) / (signal + 1), rel=0.12)


def test_label_noise_leaves_the_coherence_asked_for(tmp_path):
    settings = SIGNAL | {"label_noise": {"kind": "flip", "rate": 0.1}, "head_coherence": [0.4] + [None] * 25}
    store = prepare(dataset(**settings), tmp_path / "store")
    rate, own = np.mean(store.train.labels, dtype=np.float64), hits_of(store, 0).mean(dtype=np.float64)
    assert (own - rate) ** 2 / ((own - rate) ** 2 + own * (1 - own)) == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_share": 0.3, "head_coherence": [0.9] * 26}, "no effects of head rows give all that is asked"),
        (
            {"head_coherence": [0.9] + [None] * 25, "label_noise": {"kind": "flip", "rate": 0.2}},
            "found 0.9, want less than 0.5586",
        ),
        ({"head_coherence": [0.1] + [None] * 25, "label_noise": {"kind": "coin", "rate": 1}}, "found 0.1, want less than 0 "),
    ],
)
def test_coherence_that_no_data_have_is_an_error(tmp_path, settings, message):
    with pytest.raises(DataError, match=message):
        prepare(dataset(**settings), tmp_path / "store")
    assert list(tmp_path.glob("s*")) == []


# --- any number of rows ------------------------------------------------------------------------------------------------


def test_workers_change_nothing_and_any_row_can_be_the_first():
    one, many = (list(generate(plant(dataset()), 150_001, 32_770, workers)) for workers in (1, 5))
    everything = drawn(dataset(), 150_001)
    for batches in (one, many):
        for column, name in enumerate(("labels", "dense", "sparse")):
            found = np.concatenate([getattr(batch, name) for batch, _ in batches])
            np.testing.assert_array_equal(found, everything[column][32_770:])
        np.testing.assert_array_equal(np.concatenate([logit for _, logit in batches]), everything[3][32_770:])


def test_an_interrupted_build_goes_on_where_it_was(tmp_path, monkeypatch):
    settings = dataset(train_samples=5 * CHUNK_ROWS, eval_samples=100)
    whole = prepare(settings, tmp_path / "whole")
    monkeypatch.setattr(synthetic, "CHECKPOINT_CHUNKS", 2)
    firsts = []

    def interrupted(planted, rows, first=0, workers=1):
        firsts.append(first)
        for number, chunk in enumerate(generate(planted, rows, first, workers)):
            if number == 3 and len(firsts) == 1:
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr(synthetic, "generate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(settings, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert prepare(settings, tmp_path / "store").manifest == whole.manifest
    assert firsts == [0, 2 * CHUNK_ROWS, 5 * CHUNK_ROWS], "start, after the checkpoint, evaluation rows for the optimum"


def peak_of(rows, folder):
    tracemalloc.start()
    prepare(dataset(train_samples=rows // 2, eval_samples=rows // 2), folder, workers=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(optimum, "EXACT_ROWS", 1000)
    few, many = (peak_of(chunks * CHUNK_ROWS, tmp_path / str(chunks)) for chunks in (8, 24))
    assert many < 1.1 * few


def test_the_optimum_in_bounded_memory_is_that_of_all_rows(sample, monkeypatch):
    labels, _, _, logits = sample
    exact = quality(logits, labels)
    monkeypatch.setattr(optimum, "EXACT_ROWS", 20_000)
    truth = optimum.TruthQuality()
    for start in range(0, len(labels), 7001):
        truth.add(logits[start : start + 7001], labels[start : start + 7001])
    found = truth.result()
    assert (found.logloss, found.ne) == pytest.approx((exact.logloss, exact.ne), rel=1e-12)
    assert found.auc == pytest.approx(exact.auc, abs=1e-7)
    assert found.auc != exact.auc, "not the exact way"
