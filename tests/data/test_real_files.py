"""Real Criteo rows and the fault files, where they can be had."""

import gzip
import os
from pathlib import Path

import numpy as np
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
