"""Inputs with one kind of fault each: what is accepted, what is rejected, and what the message says."""

import gzip

import numpy as np
import pytest

from meshrec.data.prepare import prepare

from .criteo_text import accepted, assert_refused, build, changed, column, dataset, good_lines, rejected_lines

C = 14
"""Index of field C1."""


def test_lost_trailing_tabs_reject_the_row_and_shift_nothing(tmp_path):
    full = good_lines(4, missing=0)
    ends_empty = changed(changed(full[3], 38, ""), 39, "")
    lines = [full[0], "\t".join(full[1].split("\t")[:38]), "\t".join(full[2].split("\t")[:37]), ends_empty]
    store = build(tmp_path, lines)
    assert accepted(store) == 2
    assert store.manifest.rejected == {"columns": 2}
    assert rejected_lines(store) == [["2", "row", "38 columns", "want 40"], ["3", "row", "37 columns", "want 40"]]
    np.testing.assert_array_equal(column(store, "sparse", 24) == 0, [False, True])
    np.testing.assert_array_equal(column(store, "sparse", 25) == 0, [False, True])


def test_unlabelled_file_is_refused_by_name(tmp_path):
    unlabelled = [line.split("\t", 1)[1] for line in good_lines(3, missing=0)]
    assert_refused(tmp_path, unlabelled, "39 columns that look unlabelled (hex in column 14)")


def test_unlabelled_rows_among_others_are_rejected(tmp_path):
    lines = good_lines(4, missing=0)
    lines[1] = lines[1].split("\t", 1)[1]
    store = build(tmp_path, lines)
    assert store.manifest.rejected == {"unlabelled": 1}
    assert rejected_lines(store) == [["2", "row", "39 columns", "want 40; looks unlabelled (hex in column 14)"]]


def test_negative_integers_are_clamped(tmp_path):
    lines = [changed(line, 2, value) for line, value in zip(good_lines(5), ["-1", "-2", "-300", "0", ""], strict=True)]
    store = build(tmp_path, lines)
    np.testing.assert_array_equal(column(store, "dense", 1), np.array([0, 0, 0, 0, -1], np.float32))
    assert all(np.isfinite(column(store, "dense", field)).all() for field in range(13))


def test_hex_above_int31_stays_positive_and_zero_is_not_missing(tmp_path):
    values = ["00000000", "7fffffff", "80000000", "ffffffff", ""]
    lines = [changed(line, C, value) for line, value in zip(good_lines(5), values, strict=True)]
    found = column(build(tmp_path, lines, table_rows=2**31 - 1), "sparse", 0)
    assert found[:4].min() > 0
    assert len(set(found.tolist())) == 5
    assert found[4] == 0


def test_hex_case_prefix_and_width(tmp_path):
    values = ["abcdef01", "ABCDEF01", "0xabcdef01", "1abcdef0123", "abcdef0", "g0000000"]
    lines = [changed(line, C + 2, value) for line, value in zip(good_lines(6), values, strict=True)]
    store = build(tmp_path, lines)
    first, second = column(store, "sparse", 2)
    assert first == second == 1 + 0xABCDEF01 % ((1 << 20) - 1)
    wanted = [
        [str(line + 3), "C3", f"'{value}'", "want 8 hexadecimal digits, or nothing"] for line, value in enumerate(values[2:])
    ]
    assert rejected_lines(store) == wanted


def header(columns: int = 40) -> list[str]:
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    return ["", *names][41 - columns :]


def test_comma_separated_file_with_header_and_index_is_refused(tmp_path):
    rows = [f"{index},{line.replace(chr(9), ',')}" for index, line in enumerate(good_lines(3))]
    assert_refused(tmp_path, [",".join(header(41)), *rows], "commas", "header line", "41 columns; is the first an index?")


def test_header_alone_is_refused(tmp_path):
    assert_refused(tmp_path, ["\t".join(header()), *good_lines(3)], "line 1", "header line")


def test_index_column_alone_is_refused(tmp_path):
    assert_refused(
        tmp_path, [f"{index}\t{line}" for index, line in enumerate(good_lines(3))], "41 columns; is the first an index?"
    )


def test_windows_line_ends_with_header_and_commas_are_refused(tmp_path):
    text = "\r\n".join(line.replace("\t", ",") for line in ["\t".join(header()), *good_lines(3)])
    assert_refused(tmp_path, text.encode(), "commas", "header line")


def test_one_line_too_wide_is_a_bad_row_not_another_layout(tmp_path):
    lines = good_lines(4)
    lines[0] += "\t"
    store = build(tmp_path, lines)
    assert rejected_lines(store) == [["1", "row", "41 columns", "want 40"]]


def test_integers_written_as_floats_are_rejected(tmp_path):
    lines = good_lines(3)
    lines[1] = changed(lines[1], 5, "5.0")
    store = build(tmp_path, lines)
    assert rejected_lines(store) == [["2", "I5", "'5.0'", "want an integer of at most 18 digits, or nothing"]]


@pytest.mark.parametrize("kept", [0.3, 0.999])
def test_truncated_gzip_is_an_error_and_leaves_nothing(tmp_path, kept):
    data = gzip.compress("\n".join(good_lines(2000)).encode())
    assert_refused(tmp_path, data[: int(len(data) * kept)], "can't be read to its end", "rows.tsv")


def test_damaged_gzip_is_an_error(tmp_path):
    data = bytearray(gzip.compress("\n".join(good_lines(2000)).encode()))
    data[len(data) // 2] ^= 0xFF
    assert_refused(tmp_path, bytes(data), "can't be read to its end")


def test_chunk_with_an_empty_column_has_the_same_types(tmp_path, monkeypatch):
    monkeypatch.setattr("meshrec.data.source.CHUNK_BYTES", 1200)
    full, empty = good_lines(8, missing=0), [changed(changed(line, 12, ""), 35, "") for line in good_lines(8, 1, missing=0)]
    both = build(tmp_path, full + empty)
    np.testing.assert_array_equal(column(both, "dense", 11) == -1, [False] * 8 + [True] * 8)
    np.testing.assert_array_equal(column(both, "sparse", 21) == 0, [False] * 8 + [True] * 8)
    assert (both.train.dense.dtype, both.train.sparse.dtype) == (np.float32, np.int32)


def test_labels_are_never_cast(tmp_path):
    lines = good_lines(2) + [
        changed(line, 0, label) for line, label in zip(good_lines(6, 1), ["-1", "0.3", "2", "", "nan", "01"], strict=True)
    ]
    store = build(tmp_path, lines)
    assert accepted(store) == 2
    assert store.manifest.rejected == {"label": 6}
    assert rejected_lines(store)[3] == ["6", "label", "''", "want 0 or 1"]


def test_nothing_good_names_the_first_fault(tmp_path):
    assert_refused(
        tmp_path,
        [changed(line, 0, "2") for line in good_lines(3)],
        "all 3 lines are rejected (label 3)",
        "found '2', want 0 or 1",
    )


@pytest.mark.parametrize("text", [b"", gzip.compress(b"")])
def test_empty_file_is_an_error(tmp_path, text):
    assert_refused(tmp_path, text, "is empty")


def test_blank_lines_are_rejected(tmp_path):
    store = build(tmp_path, [*good_lines(2), "", ""])
    assert store.manifest.rejected == {"columns": 2}
    assert rejected_lines(store)[0] == ["3", "row", "blank line", "want 40"]


def test_text_without_a_last_line_end_is_warned_of(tmp_path, caplog):
    build(tmp_path, "\n".join(good_lines(4)).encode())
    assert "the last line has no line end" in caplog.text
    caplog.clear()
    build(tmp_path, good_lines(4, seed=1))
    assert "WARNING" not in caplog.text


def test_byte_order_mark_is_refused(tmp_path):
    assert_refused(tmp_path, b"\xef\xbb\xbf" + "\n".join(good_lines(3)).encode(), "byte-order mark")


def test_endless_line_is_refused(tmp_path):
    assert_refused(tmp_path, b"0" * (3 << 20), "longer than")


def test_variant_is_kept_apart(tmp_path):
    kaggle = build(tmp_path, good_lines(4))
    terabyte = prepare(dataset(tmp_path / "rows.tsv", variant="terabyte", table_rows=1 << 20), tmp_path / "other")
    assert (kaggle.manifest.name, terabyte.manifest.name) == ("criteo-kaggle", "criteo-terabyte")
    assert kaggle.manifest.settings != terabyte.manifest.settings
