"""Real Criteo rows and the fault files, where they can be had."""

import csv
import gzip
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from meshrec.data.layout import Layout
from meshrec.data.parse import parse_lines
from meshrec.data.prepare import prepare

from .criteo_text import accepted, assert_refused, build, column, dataset, rejected_lines


@pytest.fixture
def real():
    folder = os.environ.get("MESHREC_REAL_DATA")
    if not folder:
        pytest.skip("MESHREC_REAL_DATA is not set: real and fault files are not part of the project")
    return Path(folder)


@pytest.mark.parametrize(
    ("file", "rows", "rejected"),
    [
        ("01_trailing_tabs_lost.tsv", 2, {"columns": 2}),
        ("05_negative_ints.tsv", 6, {}),
        ("06_hex_above_int31.tsv", 5, {}),
        ("08_hex_case_prefix_width.tsv", 2, {"category": 4}),
        ("13_chunk_a_full.tsv", 4, {}),
        ("13_chunk_b_column_all_empty.tsv", 4, {}),
        ("16_label_not_binary.tsv", 2, {"label": 5}),
        ("19_day0_terabyte_layout.tsv", 2, {}),
    ],
)
def test_fault_file_counts(real, tmp_path, file, rows, rejected):
    store = build(tmp_path, real / "faults" / file)
    assert (accepted(store), store.manifest.rejected) == (rows, rejected)
    assert np.isfinite(store.train.dense).all()
    assert store.train.sparse.min() >= 0


@pytest.mark.parametrize(
    ("file", "patterns"),
    [
        ("faults/02_unlabelled_39_columns.tsv", ["unlabelled", "hex in column 14"]),
        ("faults/09_header_and_index_column.csv", ["header line", "41 columns; is the first an index?"]),
        ("faults/12_truncated.tsv.gz", ["can't be read to its end"]),
        ("faults/20_seq_tied_timestamps.csv", ["rejected"]),
        ("criteo/id_header_crlf_1999.csv", ["commas", "header line", "41 columns"]),
        ("criteo/index_column_float_ints_200.csv", ["41 columns; is the first an index?"]),
    ],
)
def test_fault_file_refused(real, tmp_path, file, patterns):
    assert_refused(tmp_path, real / file, *patterns)


def test_real_rows_that_lost_their_tabs(real, tmp_path):
    lost = build(tmp_path, real / "criteo" / "trailing_tabs_lost_1000.tsv")
    whole = prepare(dataset(real / "criteo" / "trailing_tabs_oracle_1000.tsv", table_rows=1 << 20), tmp_path / "whole")
    assert (accepted(lost), lost.manifest.rejected) == (502, {"columns": 498})
    bad = {int(line) - 1 for line, *_ in rejected_lines(lost)}
    assert len(bad) == 498
    assert accepted(whole) == 1000
    text = (real / "criteo" / "trailing_tabs_lost_1000.tsv").read_text().splitlines()
    good = [index for index, line in enumerate(text) if line.count("\t") == 39]
    np.testing.assert_array_equal(column(lost, "sparse", 20), column(whole, "sparse", 20)[good])


@pytest.mark.parametrize(
    ("file", "variant", "rows"), [("kaggle_train_137139", "kaggle", 137_139), ("terabyte_day0_head_10000", "terabyte", 10_000)]
)
def test_real_samples(real, tmp_path, file, variant, rows):
    store = build(tmp_path, real / "criteo" / f"{file}.tsv.gz", variant=variant, eval_fraction=1 / 7, table_rows=2**31 - 1)
    manifest = store.manifest
    assert (accepted(store), manifest.rejected) == (rows, {})
    clicks = (manifest.train_click_rate * manifest.train + manifest.evaluation_click_rate * manifest.evaluation) / rows
    assert clicks == pytest.approx({"kaggle": 0.257, "terabyte": 0.027}[variant], abs=1e-3)
    empty_i2 = np.mean(column(store, "dense", 1) == -1)
    assert empty_i2 == pytest.approx({"kaggle": 0.0, "terabyte": 0.10}[variant], abs=5e-3)
    assert np.mean(column(store, "sparse", 25) == 0) == pytest.approx({"kaggle": 0.44, "terabyte": 0.0}[variant], abs=5e-3)


def test_facts_of_the_real_kaggle_rows(real, tmp_path):
    store = build(tmp_path, real / "criteo" / "kaggle_train_137139.tsv.gz", eval_fraction=1 / 7, table_rows=2**31 - 1)
    assert (store.manifest.train, store.manifest.evaluation) == (117_548, 19_591)
    dense, sparse = store.train.dense, store.train.sparse
    empty = [
        np.mean(column(store, name, field) == miss)
        for name, width, miss in (("dense", 13, -1), ("sparse", 26, 0))
        for field in range(width)
    ]
    assert np.mean(empty) == pytest.approx(0.142, abs=1e-3)
    assert (dense[:, 1] >= 0).all()
    assert sparse.min() == 0
    # table rows are remainders: how many values exceed 31 bits is seen only before they are taken
    text = gzip.decompress((real / "criteo" / "kaggle_train_137139.tsv.gz").read_bytes())
    parsed = parse_lines(text, Layout(), None)
    there = (parsed.gone[:, None] >> np.arange(13, 39, dtype=np.uint64)) & np.uint64(1) == 0
    assert np.mean(parsed.rows.sparse[there].view(np.uint32) > 0x7FFFFFFF) == pytest.approx(0.44, abs=5e-3)


KAGGLE_CSV = {"separator": "comma", "header": True, "index_column": True}


def test_real_rows_that_lost_their_tabs_get_them_back(real, tmp_path):
    lost = build(tmp_path, real / "criteo" / "trailing_tabs_lost_1000.tsv", text={"pad_missing_tail": True})
    whole = prepare(dataset(real / "criteo" / "trailing_tabs_oracle_1000.tsv", table_rows=1 << 20), tmp_path / "whole")
    assert lost.manifest.rejected == {}
    assert lost.manifest.data_hash == whole.manifest.data_hash


def test_fault_of_lost_tabs_is_padded_when_declared(real, tmp_path):
    store = build(tmp_path, real / "faults" / "01_trailing_tabs_lost.tsv", text={"pad_missing_tail": True})
    assert (accepted(store), store.manifest.rejected) == (4, {})
    np.testing.assert_array_equal(column(store, "sparse", 25) == 0, [False, True, True, True])


def test_fault_of_unlabelled_rows_is_never_padded_and_can_be_predicted(real, tmp_path):
    file = real / "faults" / "02_unlabelled_39_columns.tsv"
    assert_refused(tmp_path, file, "hex in column 14", text={"pad_missing_tail": True})
    store = build(tmp_path, file, labelled=False)
    assert (store.manifest.train, store.manifest.evaluation) == (0, 3)
    np.testing.assert_array_equal(store.evaluation.dense[:, 0] == -1, [False, True, False])


def test_fault_of_header_and_index_is_read_when_declared(real, tmp_path):
    settings = {"text": {**KAGGLE_CSV, "float_integers": True}}
    store = build(tmp_path, real / "faults" / "09_header_and_index_column.csv", **settings)
    assert (accepted(store), store.manifest.rejected) == (2, {"integer": 1})
    assert rejected_lines(store) == [["4", "I4", "'5.5'", "want an integer of at most 18 digits, or nothing"]]
    np.testing.assert_array_equal(column(store, "dense", 0), np.log1p(np.float64([2, 47])).astype(np.float32))


def test_fault_of_an_empty_column_counts_as_the_full_one(real, tmp_path):
    files = [str(real / "faults" / f"13_chunk_{name}.tsv") for name in ("a_full", "b_column_all_empty")]
    store = prepare(dataset(files, table_rows=1 << 20), tmp_path / "store")
    assert accepted(store) == 8
    assert [feature for feature, rows in enumerate(store.manifest.missing or []) if rows] == [11, 13 + 21]
    np.testing.assert_array_equal(column(store, "dense", 11) == -1, [False] * 4 + [True] * 4)


@pytest.mark.parametrize(
    ("file", "rows", "text"),
    [
        ("id_header_crlf_1999.csv", 1999, KAGGLE_CSV),
        ("index_column_float_ints_200.csv", 200, {**KAGGLE_CSV, "float_integers": True}),
    ],
)
def test_real_csv_variants(real, tmp_path, file, rows, text):
    """Compared with Python's own reader of such files."""
    store = build(tmp_path, real / "criteo" / file, text=text, table_rows=2**31 - 1)
    assert (accepted(store), store.manifest.rejected) == (rows, {})
    with (real / "criteo" / file).open(newline="") as lines:
        table = list(csv.reader(lines))[1:]
    for field in (0, 2, 12):
        wanted = [-1.0 if row[2 + field] == "" else math.log1p(max(float(row[2 + field]), 0)) for row in table]
        np.testing.assert_array_equal(column(store, "dense", field), np.float32(wanted))
    for field in (0, 21, 25):
        values = [row[15 + field] for row in table]
        np.testing.assert_array_equal(
            column(store, "sparse", field), [1 + int(value, 16) % (2**31 - 2) if value else 0 for value in values]
        )


def test_vocabulary_of_the_real_rows(real, tmp_path):
    """Counted by pandas from the text."""
    file = real / "criteo" / "kaggle_train_137139.tsv.gz"
    table = pd.read_csv(file, sep="\t", header=None, dtype=str, usecols=[16, 38])[:117_548]
    store = build(tmp_path, file, eval_fraction=1 / 7, categories={"kind": "vocabulary", "min_count": 10})
    sizes = store.manifest.vocabulary.sizes
    for field in (2, 24):
        assert sizes[field] == (table[14 + field].value_counts() >= 10).sum()
        assert column(store, "sparse", field).max() == sizes[field] + 1
