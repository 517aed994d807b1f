"""Access frequencies are those of the ids that training looks up."""

import numpy as np
import pytest

from meshrec.data.hots import expand
from meshrec.data.store import Split
from meshrec.embeddings import load
from meshrec.embeddings.load import access_frequencies
from meshrec.embeddings.plan import PlanError

ROWS = [3 + 2 * table for table in range(26)]


def split_of(ids: np.ndarray) -> Split:
    return Split(np.zeros(len(ids), np.float32), np.zeros((len(ids), 13), np.float32), ids)


def ids_of(samples: int) -> np.ndarray:
    return (np.random.default_rng(0).random((samples, 26)) ** 2 * ROWS).astype(np.int32)


@pytest.mark.parametrize("hots", [[1] * 26, [1 + table % 3 for table in range(26)]])
def test_lookups_are_counted_by_table_and_row(hots, monkeypatch):
    monkeypatch.setattr(load, "CHUNK", 64)  # 1000 samples are 16 parts, the last one short
    ids = ids_of(1000)
    counts = access_frequencies(split_of(ids), ROWS, hots)
    everything = np.split(expand(ids, hots, ROWS), np.cumsum(hots)[:-1], axis=1)
    for table, of_table in enumerate(everything):
        np.testing.assert_array_equal(counts[table], np.bincount(of_table.ravel(), minlength=ROWS[table]))
        assert counts[table].dtype == np.int64
        assert counts[table].sum() == 1000 * hots[table]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_an_id_of_another_table_is_refused_by_sample(wrong, monkeypatch):
    monkeypatch.setattr(load, "CHUNK", 64)
    ids = ids_of(100)
    ids[70, 0] = wrong
    with pytest.raises(PlanError, match=f"training sample 70 asks for row {wrong} of table 0, which has 3 rows"):
        access_frequencies(split_of(ids), ROWS, [1] * 26)
