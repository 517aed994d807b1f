"""Parquet files give the same store as the text that they were made from, or say which column is wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .criteo_text import assert_refused, build, good_lines, rejected_lines

NAMES = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]


def table(lines: list[str]) -> dict[str, pa.Array]:
    columns = zip(*(line.split("\t") for line in lines), strict=True)
    arrays = {}
    for name, values in zip(NAMES, columns, strict=True):
        number = name == "label" or name.startswith("I")
        arrays[name] = pa.array([None if value == "" else int(value) if number else value for value in values])
    return arrays


def write(tmp_path, columns, **options):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.fixture
def lines():
    return good_lines(300)


@pytest.fixture
def as_text(tmp_path, lines):
    (tmp_path / "text").mkdir()
    return build(tmp_path / "text", lines).manifest.data_hash


@pytest.mark.parametrize("row_group", [7, 1000])
def test_same_store_as_from_text(tmp_path, lines, as_text, row_group):
    store = build(tmp_path, write(tmp_path, table(lines), row_group_size=row_group))
    assert store.manifest.data_hash == as_text
    assert store.manifest.sources[0].bytes == (tmp_path / "rows.parquet").stat().st_size


def test_index_booleans_floats_and_dictionaries(tmp_path, lines, as_text):
    columns = table(lines)
    columns["label"] = pa.array([label.as_py() == 1 for label in columns["label"]])
    columns["I3"] = pa.array([np.nan if value.as_py() is None else float(value.as_py()) for value in columns["I3"]])
    columns["C4"] = columns["C4"].dictionary_encode()
    path = write(tmp_path, {"Id": pa.array(range(len(lines))), **columns})
    store = build(tmp_path, path, text={"index_column": True, "float_integers": True})
    assert store.manifest.data_hash == as_text


def test_a_header_need_not_be_declared_and_may(tmp_path, lines, as_text):
    assert build(tmp_path, write(tmp_path, table(lines)), text={"header": True}).manifest.data_hash == as_text


def test_rejected_rows_are_located(tmp_path, lines):
    columns = table(lines)
    columns["I2"] = pa.array([5.5 if row == 12 else 1.0 for row in range(len(lines))])
    columns["label"] = pa.array([2 if row == 20 else 1 for row in range(len(lines))])
    store = build(tmp_path, write(tmp_path, columns), text={"float_integers": True})
    assert [line[:3] for line in rejected_lines(store)] == [["13", "I2", "'5.5'"], ["21", "label", "'2'"]]


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("I2", [1.0] * 300, "declare text.float_integers"),
        ("C2", [1] * 300, "column 'C2' is int64, want text"),
        ("label", [0.5] * 300, "want 0 or 1"),
        ("C9", ["a\tb"] * 300, "can't be part of a row"),
    ],
)
def test_wrong_columns_are_named(tmp_path, lines, name, values, problem):
    assert_refused(tmp_path, write(tmp_path, {**table(lines), name: pa.array(values)}), problem)


def test_columns_in_another_order_or_number_are_refused(tmp_path, lines):
    columns = table(lines)
    assert_refused(tmp_path, write(tmp_path, dict(reversed(columns.items()))), "label column named 'c26'")
    assert_refused(tmp_path, write(tmp_path, {"Id": columns["I1"], **columns}), "41 columns; is the first an index?")


def test_damaged_file_is_an_error(tmp_path, lines):
    path = write(tmp_path, table(lines))
    path.write_bytes(path.read_bytes()[:-100])
    assert_refused(tmp_path, path, "rows.parquet")


def test_damaged_pages_are_an_error(tmp_path, lines):
    path = write(tmp_path, table(lines), compression="zstd")
    data = bytearray(path.read_bytes())
    data[50:5000] = bytes(4950)
    path.write_bytes(bytes(data))
    assert_refused(tmp_path, path, "rows.parquet")
