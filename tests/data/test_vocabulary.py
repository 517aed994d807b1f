"""Vocabularies: exact counts in bounded memory, from training rows only, and rows that say which category they are."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from meshrec.data import counting, vocabulary
from meshrec.data.columns import DataError
from meshrec.data.counting import CategoryCounts
from meshrec.data.prepare import prepare
from meshrec.data.store import StoreError, open_store, read_vocabularies

from .criteo_text import build, changed, column, dataset, good_lines

C1 = 14
VOCABULARY = {"kind": "vocabulary", "min_count": 2}


def lines_of(values, field=C1):
    return [changed(line, field, value) for line, value in zip(good_lines(len(values)), values, strict=True)]


def test_rows_are_missing_shared_and_own_in_the_order_of_values(tmp_path):
    values = ["ffffffff", "00000000", "", "0000000a", "ffffffff", "00000000", "0000000b", "", "FFFFFFFF", "0000000c"]
    store = build(tmp_path, lines_of(values), categories=VOCABULARY, eval_fraction=0.2)
    np.testing.assert_array_equal(column(store, "sparse", 0), [3, 2, 0, 1, 3, 2, 1, 0, 3, 1])
    assert read_vocabularies(store)[0].tolist() == [0, 0xFFFFFFFF]
    assert store.manifest.vocabulary is not None
    assert (store.manifest.vocabulary.sizes[0], store.manifest.vocabulary.min_count) == (2, 2)
    assert "place in the table's vocabulary" in store.manifest.transform
    store.verify()


def test_evaluation_rows_say_nothing(tmp_path):
    values = ["0000000a"] * 4 + ["0000000b"] + ["0000000b"] * 5
    store = build(tmp_path, lines_of(values), categories=VOCABULARY, eval_fraction=0.5)
    np.testing.assert_array_equal(column(store, "sparse", 0), [2] * 4 + [1] * 6)


def test_same_as_counting_in_python(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "COUNTED_ROWS", 70)
    monkeypatch.setattr(vocabulary, "LOOKED_UP_ROWS", 33)
    monkeypatch.setattr(vocabulary, "CHECKPOINT_ROWS", 100)
    monkeypatch.setattr(counting, "MOST_ENTRIES", 300)
    rng = np.random.default_rng(0)
    heads = [f"{value:08x}" for value in rng.integers(0, 2**32, 12)]
    lines = good_lines(400)
    for number in range(400):
        for field in range(C1, 40):
            if rng.random() < 0.7:
                lines[number] = changed(lines[number], field, heads[int(rng.zipf(1.5)) % 12])
    store = build(tmp_path, lines, categories={"kind": "vocabulary", "min_count": 3}, eval_fraction=0.25)
    for field in range(26):
        found = [line.split("\t")[C1 + field] for line in lines]
        counts = Counter(value for value in found[:300] if value)
        known = {value: 2 + place for place, value in enumerate(sorted(v for v, n in counts.items() if n >= 3))}
        wanted = [known.get(value, 1) if value else 0 for value in found]
        np.testing.assert_array_equal(column(store, "sparse", field), wanted)


def random_counts(seed, rows=500):
    rng = np.random.default_rng(seed)
    values = (rng.zipf(1.3, (rows, 26)) * 2_654_435_761 % 2**32).astype(np.uint32).view(np.int32)
    return values, rng.integers(0, 2**39, rows).astype(np.uint64)


def frequent(counts, min_count):
    return [np.concatenate(list(counts.frequent(table, min_count))) for table in range(26)]


def test_runs_on_disk_change_nothing_and_are_gone_on_from(tmp_path, monkeypatch):
    values, gone = random_counts(1)
    with ThreadPoolExecutor(2) as pool:
        whole = CategoryCounts(tmp_path / "whole")
        whole.add(values, gone, pool)
        wanted = frequent(whole, 3)
        monkeypatch.setattr(counting, "MOST_ENTRIES", 600)
        parts = CategoryCounts(tmp_path / "parts")
        for start in range(0, 400, 50):
            parts.add(values[start : start + 50], gone[start : start + 50], pool)
        del parts
        again = CategoryCounts(tmp_path / "parts")
        assert 0 < again.rows <= 400
        again.add(values[again.rows :], gone[again.rows :], pool)
    assert len(list((tmp_path / "parts").glob("*.json"))) > 2
    for found, table in zip(frequent(again, 3), wanted, strict=True):
        np.testing.assert_array_equal(found, table)
    assert sum(map(len, wanted)) > 26


def test_too_small_table_says_how_many_rows_are_needed_and_keeps_the_parsed_rows(tmp_path, caplog):
    caplog.set_level("INFO")
    lines = good_lines(40, missing=0)
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join([*lines, *lines]))
    settings = {"categories": VOCABULARY, "eval_fraction": 0.01}
    with pytest.raises(DataError, match="C1 has 39 categories") as error:
        prepare(dataset(path, table_rows=40, **settings), tmp_path / "store")
    assert not (tmp_path / "store").exists()
    needed = json.loads(str(error.value).rsplit("table_rows: ")[-1].split(". What")[0])
    assert needed == [41] * 26
    store = prepare(dataset(path, table_rows=needed, **settings), tmp_path / "store")
    assert "going on after 80 rows" in caplog.text
    whole = prepare(dataset(path, table_rows=needed, **settings), tmp_path / "whole")
    assert store.manifest == whole.manifest


def test_rows_to_predict_take_the_vocabulary_of_the_training_rows(tmp_path):
    lines = lines_of(["0000000a", "0000000a", "0000000b", "0000000b", "0000000c", "0000000d"])
    trained = build(tmp_path, lines, categories=VOCABULARY, eval_fraction=0.2)
    (tmp_path / "predict").mkdir()
    settings = {"labelled": False, "categories": {**VOCABULARY, "store": str(trained.path)}}
    new = [line.split("\t", 1)[1] for line in lines_of(["0000000b", "", "0000000a", "0000000c", "12345678"])]
    found = build(tmp_path / "predict", new, **settings)
    np.testing.assert_array_equal(found.evaluation.sparse[:, 0], [3, 0, 2, 1, 1])
    with pytest.raises(DataError, match="means something else in another set"):
        build(tmp_path / "predict", new, variant="terabyte", **settings)
    (tmp_path / "hashed").mkdir()
    hashed = build(tmp_path / "hashed", lines)
    with pytest.raises(StoreError, match="has no vocabularies"):
        build(tmp_path / "predict", new, **{**settings, "categories": {**VOCABULARY, "store": str(hashed.path)}})


def test_damaged_vocabulary_is_found(tmp_path):
    store = build(tmp_path, lines_of(["0000000a"] * 6), categories=VOCABULARY)
    file = store.path / "vocabulary.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StoreError, match="vocabulary"):
        open_store(store.path).verify()
    with pytest.raises(StoreError, match="vocabulary"):
        read_vocabularies(open_store(store.path))
    file.unlink()
    with pytest.raises(StoreError, match=r"vocabulary\.npy: not found"):
        open_store(store.path)
