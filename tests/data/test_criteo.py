"""The Criteo reader against a slow parser of its own, whatever the chunks, line ends and compression."""

import gzip
import logging
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meshrec.data import criteo, source
from meshrec.data.columns import DataError, transform_categories, transform_counts
from meshrec.data.prepare import available, prepare

from .criteo_text import ROWS, dataset, fields, good_lines, slow_parse, spoiled


def everything(store):
    parts = store.train, store.evaluation
    return tuple(np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "dense", "sparse"))


def assert_reads_like_oracle(path: Path, text: bytes, out: Path) -> None:
    store = prepare(dataset(path), out)
    for found, wanted in zip(everything(store), slow_parse(text, ROWS), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("chunk", [300, 4 << 20])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("compressed", [False, True])
def test_good_and_bad_lines_as_the_oracle(tmp_path, monkeypatch, chunk, line_end, compressed):
    monkeypatch.setattr(source, "CHUNK_BYTES", chunk)
    rng = random.Random(chunk)
    lines = ["\t".join(spoiled(rng, fields(rng)) if rng.random() < 0.5 else fields(rng)) for _ in range(1500)]
    text = line_end.join([*good_lines(20), *lines, *good_lines(1, seed=9)]).encode()
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(text) if compressed else text)
    assert_reads_like_oracle(path, text, tmp_path / "store")
    manifest = prepare(dataset(path), tmp_path / "store").manifest
    assert manifest.train + manifest.evaluation + sum(manifest.rejected.values()) == 1521
    assert set(manifest.rejected) == {"columns", "label", "integer", "category"}


def test_several_gzip_members_are_one_text(tmp_path):
    text = "\n".join(good_lines(30)).encode()
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    assert_reads_like_oracle(path, text, tmp_path / "store")


def test_all_missing_and_none_missing(tmp_path):
    text = "\n".join([*good_lines(10, missing=0), "1" + "\t" * 39, *good_lines(10, seed=1, missing=0)]).encode() + b"\n"
    path = tmp_path / "rows.tsv"
    path.write_bytes(text)
    assert_reads_like_oracle(path, text, tmp_path / "store")


def test_missing_is_apart_from_zero_and_from_negative():
    counts = np.array([[-5, -1, 0, 1, 0]])
    dense = transform_counts(counts, np.array([[False, False, False, False, True]]))
    np.testing.assert_array_equal(dense[0], np.array([0, 0, 0, np.log(2), -1], np.float32))


def test_rows_of_categories_stay_in_their_table_and_off_the_missing_row():
    values = np.array([[0, 2**31 - 1, 2**31, 2**32 - 1]])
    rows = transform_categories(values, np.zeros((1, 4), bool), [2, 2**31 - 1, 2**31 - 1, 10])
    np.testing.assert_array_equal(rows[0], [1, 1 + (2**31 - 1) % (2**31 - 2), 1 + 2**31 % (2**31 - 2), 1 + (2**32 - 1) % 9])


def test_rejected_lines_are_counted_and_each_is_named(tmp_path, caplog):
    lines = good_lines(300)
    for bad in range(0, 240, 2):
        lines[bad] = lines[bad].replace(lines[bad][0], "7", 1)
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join(lines))
    with caplog.at_level(logging.WARNING):
        store = prepare(dataset(path), tmp_path / "store")
    assert store.manifest.rejected == {"label": 120}
    assert "120 lines rejected (label 120)" in caplog.text
    written = (tmp_path / "store" / "rejected.tsv").read_text().splitlines()
    assert written[0] == "file\tline\tfield\tfound\treason"
    assert len(written) == 121
    assert written[2] == "rows.tsv\t3\tlabel\t'7'\twant 0 or 1"


def test_split_is_by_file_order(tmp_path):
    lines = good_lines(70)
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join(lines))
    store = prepare(dataset(path, eval_fraction=1 / 7), tmp_path / "store")
    assert (store.manifest.train, store.manifest.evaluation) == (60, 10)
    _, dense, _ = slow_parse("\n".join(lines[60:]).encode(), ROWS)
    np.testing.assert_array_equal(store.evaluation.dense, dense)
    assert store.manifest.train_click_rate == np.mean([line[0] == "1" for line in lines[:60]])


@pytest.mark.parametrize(("rows", "fraction", "wanted"), [(2, 0.01, 1), (2, 0.99, 1), (10, 0.26, 3), (137_139, 1 / 7, 19_591)])
def test_evaluation_rows_are_rounded_and_never_all_or_none(rows, fraction, wanted):
    assert criteo.evaluation_rows(rows, fraction) == wanted


def test_one_row_cant_be_split(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text(good_lines(1)[0])
    with pytest.raises(DataError, match="want at least 2"):
        prepare(dataset(path), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_unset_variable_says_which_to_set(monkeypatch, tmp_path):
    monkeypatch.delenv("MESHREC_NO_SUCH", raising=False)
    reason = available(dataset("${MESHREC_NO_SUCH}/rows.tsv"))
    assert reason is not None
    assert "$MESHREC_NO_SUCH is not set" in reason
    with pytest.raises(DataError, match="MESHREC_NO_SUCH"):
        prepare(dataset("$MESHREC_NO_SUCH/rows.tsv"), tmp_path / "store")


def test_variables_are_put_in_and_missing_files_named(monkeypatch, tmp_path):
    monkeypatch.setenv("MESHREC_SOME_FOLDER", str(tmp_path))
    there = dataset("$MESHREC_SOME_FOLDER/rows.tsv")
    assert str(tmp_path / "rows.tsv") in (available(there) or "")
    (tmp_path / "rows.tsv").write_text("\n".join(good_lines(4)))
    assert available(there) is None
    assert prepare(there, tmp_path / "store").manifest.settings["path"] == "$MESHREC_SOME_FOLDER/rows.tsv"


def test_asking_what_is_available_needs_no_parser():
    code = "import sys, meshrec.data.prepare; print([m for m in ('numba', 'torch', 'scipy', 'pandas') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_hash_is_that_of_the_file(tmp_path):
    import hashlib

    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress("\n".join(good_lines(50)).encode()))
    source = prepare(dataset(path), tmp_path / "store").manifest.sources[0]
    assert source is not None
    assert (source.file, source.bytes) == ("rows.gz", path.stat().st_size)
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
