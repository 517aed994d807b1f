import os
from pathlib import Path

import numpy as np
import pytest

from meshrec.data.columns import Rows
from meshrec.data.describe import bin_label, describe_store, ranked, table_facts
from meshrec.data.prepare import prepare
from meshrec.data.store import StoreError
from meshrec.data.writer import StoreWriter
from meshrec.experiment.schema import CriteoDataset


def rows_of(counts, sparse, labels):
    """Rows whose first integer holds the counts (None: missing), whose first table is hit as said; the rest is missing."""
    number = len(labels)
    dense, ids = np.full((number, 13), -1, np.float32), np.zeros((number, 26), np.int32)
    dense[:, 0] = [-1 if count is None else np.log1p(count) for count in counts]
    ids[:, 0] = sparse
    return Rows(np.array(labels, np.float32), dense, ids)


def written(path, rows, train, **facts):
    with StoreWriter(path) as writer:
        writer.append(rows)
        writer.finish(train, kind="synthetic", name="synthetic", settings={}, table_rows=[9] * 26, **facts)
    return path


COUNTS = [0, 1, 2, 3, 4, 5, None, 1_000_000]
HITS = [1, 1, 1, 1, 2, 3, 0, 8]


def test_counts_by_hand(tmp_path):
    found = describe_store(written(tmp_path / "s", rows_of([*COUNTS, 0, 0], [*HITS, 2, 2], [1, 0, 1, 0, 0, 0, 1, 0, 1, 0]), 8))
    train = found.train
    assert (train.rows, train.clicks, train.click_rate) == (8, 3, 3 / 8)
    assert (found.evaluation.rows, found.evaluation.click_rate) == (2, 0.5)
    assert train.missing.tolist() == [1, *[8] * 12, 1, *[8] * 25]
    assert found.evaluation.missing_rates.tolist() == [0, *[1] * 12, 0, *[1] * 25]
    assert train.hits[0].tolist() == [1, 4, 1, 1, 0, 0, 0, 0, 1]
    assert ranked(train.hits[0]).tolist() == [4, 1, 1, 1]
    # 0 · 1 · 2 · 3 to 4 · 5 to 8 · … · 2¹⁹ + 1 to 2²⁰
    assert {bin_label(place): rows for place, rows in enumerate(train.histograms[0]) if rows} == {
        "0": 1, "1": 1, "2": 1, "4": 2, "8": 1, "1M": 1
    }  # fmt: skip
    assert train.histograms[1:].sum() == 0
    facts = table_facts(found)
    assert (facts[0].rows, facts[0].hit, facts[0].once, facts[0].head_share, facts[0].half, facts[0].shared) == (
        9,
        4,
        3,
        4 / 7,
        1,
        None,
    )
    assert (facts[1].hit, facts[1].head_share, facts[1].half) == (0, 0.0, 0)


def test_half_of_the_lookups_by_hand(tmp_path):
    found = describe_store(written(tmp_path / "s", rows_of([0] * 6, [1, 1, 2, 3, 4, 5], [0] * 6), 5))
    assert table_facts(found)[0].half == 2  # 2 of 5 is less than half, 3 of 5 isn't


def test_rows_to_predict_have_no_clicks(tmp_path):
    rows = rows_of([0, 0], [1, 2], [np.nan, np.nan])
    found = describe_store(written(tmp_path / "s", rows, 0, labelled=False))
    assert found.train.rows == 0
    assert found.evaluation.click_rate is None
    assert found.shown is found.evaluation
    assert found.shown_rows == "2 rows to predict"
    assert table_facts(found)[0].hit == 2


def test_a_folder_without_a_store(tmp_path):
    with pytest.raises(StoreError, match="is no prepared data set"):
        describe_store(tmp_path)


@pytest.mark.skipif("MESHREC_REAL_DATA" not in os.environ, reason="MESHREC_REAL_DATA is not set")
@pytest.mark.parametrize("categories", [{"kind": "hashed"}, {"kind": "vocabulary", "min_count": 10}])
def test_real_rows_agree_with_what_their_reader_counted(tmp_path, categories):
    """The reader counts missing fields in the text, this counts them in the columns."""
    path = Path(os.environ["MESHREC_REAL_DATA"]) / "criteo" / "terabyte_day0_head_10000.tsv.gz"
    dataset = {"kind": "criteo", "variant": "terabyte", "path": str(path), "table_rows": 5000, "categories": categories}
    manifest = prepare(CriteoDataset.model_validate(dataset), tmp_path / "s", 1).manifest
    found = describe_store(tmp_path / "s")
    assert (found.train.missing + found.evaluation.missing).tolist() == manifest.missing
    assert found.train.click_rate == pytest.approx(manifest.train_click_rate, abs=1e-12)
    assert found.evaluation.missing_rates[1] == pytest.approx(0.10, abs=0.02)  # I2 of the Terabyte set
    assert ((found.train.histograms.sum(axis=1) + found.train.missing[:13]) == found.train.rows).all()
    for table, hits in enumerate(found.train.hits):
        assert hits.sum() == found.train.rows
        assert hits[0] == found.train.missing[13 + table]
    if manifest.vocabulary is not None:
        for fact, size in zip(table_facts(found), manifest.vocabulary.sizes, strict=True):
            assert fact.hit <= size + 1
            assert fact.shared is not None
        assert sum(fact.hit for fact in table_facts(found)) >= sum(manifest.vocabulary.sizes)
    assert found.hashed == (manifest.vocabulary is None)
