"""Variants of Criteo's format that people have: read when declared, refused by name when not, never changed in silence."""

import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from meshrec.data.columns import DataError
from meshrec.data.prepare import prepare
from meshrec.data.store import StoreError, open_store

from .criteo_text import accepted, assert_refused, build, changed, column, dataset, good_lines, rejected_lines

NAMES = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]


def commas(lines):
    return [line.replace("\t", ",") for line in lines]


def with_index(lines, separator="\t"):
    return [f"{10_000_000 + number}{separator}{line}" for number, line in enumerate(lines)]


def same_rows(one, other):
    return one.manifest.data_hash == other.manifest.data_hash


@pytest.fixture
def plain(tmp_path):
    """The store of 20 good lines in Criteo's own format, and those lines."""
    lines = good_lines(20)
    (tmp_path / "plain").mkdir()
    return build(tmp_path / "plain", lines), lines


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "named",
    [NAMES, [name.upper() for name in NAMES], ["click", *(f"int_{i}" for i in range(13)), *(f"cat_{i}" for i in range(26))]],
)
def test_comma_separated_with_header_and_index(tmp_path, plain, line_end, named):
    store, lines = plain
    text = line_end.join([",".join(["Id", *named]), *with_index(commas(lines), ",")]).encode()
    found = build(tmp_path, text, text={"separator": "comma", "header": True, "index_column": True})
    assert same_rows(found, store)
    assert found.manifest.rejected == {}


def test_rejected_lines_after_a_header_have_their_own_numbers(tmp_path):
    lines = good_lines(4)
    lines[2] = changed(lines[2], 0, "7")
    store = build(tmp_path, ["\t".join(NAMES), *lines], text={"header": True})
    assert rejected_lines(store) == [["4", "label", "'7'", "want 0 or 1"]]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["I1", "label", *NAMES[2:]], "label column named 'i1'"),
        ([*NAMES[:3], "I4", "I3", *NAMES[5:]], "column 4 named 'i4', want I3"),
        ([*NAMES[:14], *reversed(NAMES[14:])], "column 15 named 'c26', want C1"),
        ([*NAMES[:39], "price"], "column 40 named 'price', want C26"),
    ],
)
def test_columns_in_another_order_are_refused(tmp_path, names, problem):
    assert_refused(tmp_path, ["\t".join(names), *good_lines(3)], problem, text={"header": True})


def test_declared_header_that_is_not_there_is_refused(tmp_path):
    assert_refused(tmp_path, good_lines(3), "no header line, though text.header is declared", text={"header": True})


def test_declared_index_that_is_not_there_is_refused(tmp_path):
    assert_refused(tmp_path, good_lines(3), "no index column, though", text={"index_column": True})


def test_header_without_rows_is_refused(tmp_path):
    assert_refused(tmp_path, ["\t".join(NAMES)], "a header line and no rows", text={"header": True})


def test_undeclared_variants_say_what_to_declare(tmp_path):
    text = [",".join(["", *NAMES]), *with_index(commas(good_lines(3)), ",")]
    wanted = "declare text.separator: comma", "declare text.header: true", "declare text.index_column: true"
    assert_refused(tmp_path, text, *wanted)


@pytest.mark.parametrize(("written", "read"), [("5.0", 5), ("-2.0", -2), ("7", 7), ("12.000", 12), ("", None), ("-0.0", 0)])
def test_declared_floats_are_read_as_integers(tmp_path, written, read):
    lines = [changed(line, 3, written) for line in good_lines(2)]
    found = column(build(tmp_path, lines, text={"float_integers": True}), "dense", 2)
    np.testing.assert_array_equal(found, np.float32(-1 if read is None else np.log1p(max(read, 0))))


@pytest.mark.parametrize(
    "written", ["5.5", "5.", ".0", "1e3", "nan", "inf", "5.0.0", "5,0", "-.0", "5.0 ", "0x5.0", "1" * 19 + ".0"]
)
def test_floats_that_are_no_integers_are_rejected_even_then(tmp_path, written):
    lines = good_lines(3)
    lines[1] = changed(lines[1], 3, written)
    store = build(tmp_path, lines, text={"float_integers": True})
    assert [line[:2] for line in rejected_lines(store)] == [["2", "I3"]]


@pytest.mark.parametrize("lost", [1, 2, 5, 25])
def test_padded_rows_are_those_that_lost_nothing(tmp_path, plain, lost):
    lines = good_lines(12, missing=0)
    whole = ["\t".join(line.split("\t")[: 40 - lost] + [""] * lost) for line in lines]
    (tmp_path / "whole").mkdir()
    wanted = build(tmp_path / "whole", whole)
    found = build(
        tmp_path, [line.rstrip("\t") if n % 2 else line for n, line in enumerate(whole)], text={"pad_missing_tail": True}
    )
    assert same_rows(found, wanted)


@pytest.mark.parametrize("kept", [1, 2, 13, 14])
def test_rows_that_lost_more_than_their_tail_are_not_padded(tmp_path, kept):
    lines = good_lines(4, missing=0)
    lines[1] = "\t".join(lines[1].split("\t")[:kept])
    store = build(tmp_path, lines, text={"pad_missing_tail": True})
    assert rejected_lines(store) == [["2", "row", f"{kept} columns", "want 40"]]


@pytest.mark.parametrize("first_category", ["0a1b2c3d", "12345678"])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_unlabelled_rows_are_never_padded(tmp_path, first_category, lost):
    line = changed(changed(good_lines(1, missing=0)[0], 14, first_category), 1, "1")
    unlabelled = "\t".join(line.split("\t")[1 : 40 - lost])  # its first field is an integer that could be a label
    store = build(tmp_path, [*good_lines(3, seed=1), unlabelled], text={"pad_missing_tail": True})
    assert accepted(store) == 3
    assert rejected_lines(store)[0][:3] == ["4", "row", f"{39 - lost} columns"]


def test_unlabelled_rows_are_prepared_to_be_predicted(tmp_path, plain):
    store, lines = plain
    found = build(tmp_path, [line.split("\t", 1)[1] for line in lines], labelled=False)
    assert (found.manifest.train, found.manifest.evaluation, found.manifest.labelled) == (0, 20, False)
    assert np.isnan(found.evaluation.labels).all()
    for name in ("dense", "sparse"):
        whole = np.concatenate([getattr(store.train, name), getattr(store.evaluation, name)])
        np.testing.assert_array_equal(getattr(found.evaluation, name), whole)
    assert found.manifest.evaluation_click_rate is None
    with pytest.raises(StoreError, match="without labels"):
        _ = found.train


def test_labelled_rows_are_no_rows_to_predict(tmp_path):
    assert_refused(tmp_path, good_lines(4), "40 columns; are the rows labelled?", labelled=False)


def test_first_missing_integer_of_an_unlabelled_row_is_kept(tmp_path):
    lines = [line.split("\t", 1)[1] for line in good_lines(3, missing=0)]
    lines[1] = "\t" + lines[1].split("\t", 1)[1]
    found = build(tmp_path, lines, labelled=False)
    np.testing.assert_array_equal(found.evaluation.dense[:, 0] == -1, [False, True, False])


def compressed(text: bytes, codec: str) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec) as stream:
        stream.write(text)
    return out.getvalue().to_pybytes()


def test_zstd_is_the_same_text(tmp_path, plain):
    store, lines = plain
    text = "".join(f"{line}\n" for line in lines).encode()
    found = build(tmp_path, compressed(text[:999], "zstd") + compressed(text[999:], "zstd"))
    assert same_rows(found, store)


@pytest.mark.parametrize("kept", [0.3, 0.999])
def test_truncated_zstd_is_an_error(tmp_path, kept):
    data = compressed("\n".join(good_lines(2000)).encode(), "zstd")
    assert_refused(tmp_path, data[: int(len(data) * kept)], "can't be read to its end")


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_rubbish_after_compressed_text_is_an_error(tmp_path, codec):
    text = "\n".join(good_lines(50)).encode()
    data = gzip.compress(text) if codec == "gzip" else compressed(text, codec)
    assert_refused(tmp_path, data + b"rubbish that is no member", "can't be read to its end")


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PK\x03\x04", "zip archive"),
        (b"BZh9", "bzip2"),
        (b"\xfd7zXZ\x00", "by xz"),
        (b"version https://git-lfs.github", "Git LFS"),
    ],
)
def test_other_kinds_of_file_say_what_they_are(tmp_path, start, what):
    assert_refused(tmp_path, start + b"\x00" * 200, what)


def test_tar_archive_says_what_it_is(tmp_path):
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        text = "\n".join(good_lines(5)).encode()
        entry = tarfile.TarInfo("train.txt")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    assert_refused(tmp_path, out.getvalue(), "tar archive")


def days(tmp_path, numbers):
    """Files of so many rows each, and all their lines."""
    lines, files = good_lines(sum(numbers)), []
    for day, number in enumerate(numbers):
        start = sum(numbers[:day])
        (tmp_path / f"day_{day}").write_text("".join(f"{line}\n" for line in lines[start : start + number]))
        files.append(str(tmp_path / f"day_{day}"))
    return files, lines


def test_files_are_read_in_the_given_order_and_the_last_days_evaluated(tmp_path):
    files, lines = days(tmp_path, [7, 5, 8])
    store = prepare(dataset(files, eval_days=1, table_rows=1 << 20), tmp_path / "store")
    assert (store.manifest.train, store.manifest.evaluation) == (12, 8)
    (tmp_path / "whole").mkdir()
    whole = build(tmp_path / "whole", lines)
    assert same_rows(store, whole)
    assert [source.file for source in store.manifest.sources] == ["day_0", "day_1", "day_2"]
    two = prepare(dataset(files, eval_days=2, table_rows=1 << 20), tmp_path / "two")
    assert (two.manifest.train, two.manifest.evaluation) == (7, 13)
    fraction = prepare(dataset(files, eval_fraction=0.25, table_rows=1 << 20), tmp_path / "fraction")
    assert (fraction.manifest.train, fraction.manifest.evaluation) == (15, 5)


def test_rejected_lines_name_their_file_and_its_line(tmp_path):
    files, lines = days(tmp_path, [3, 4])
    (tmp_path / "day_1").write_text("\n".join([lines[3], "nonsense", lines[4]]))
    store = prepare(dataset(files), tmp_path / "store")
    assert (store.path / "rejected.tsv").read_text().splitlines()[1].split("\t")[:2] == ["day_1", "2"]


def test_a_day_given_twice_is_refused(tmp_path):
    files, _ = days(tmp_path, [3, 4])
    (tmp_path / "copy").write_bytes((tmp_path / "day_0").read_bytes())
    with pytest.raises(DataError, match="same bytes as day_0"):
        prepare(dataset([*files, str(tmp_path / "copy")]), tmp_path / "store")
    with pytest.raises(ValidationError, match="names a file twice"):
        dataset([files[0], files[0]])


def test_a_missing_day_is_named(tmp_path):
    files, _ = days(tmp_path, [3, 4])
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}/day_9 is no file")):
        prepare(dataset([*files, str(tmp_path / "day_9")]), tmp_path / "store")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eval_days": 1, "eval_fraction": 0.5}, "not both"),
        ({"eval_days": 1}, "want at least one to train on"),
        ({"labelled": False, "eval_fraction": 0.5}, "aren't split"),
        (
            {"labelled": False, "categories": {"kind": "vocabulary", "min_count": 2}},
            "can't make a vocabulary",
        ),
        ({"text": {"separator": "semicolon"}}, "separator"),
        ({"text": {"strip": True}}, "strip"),
    ],
)
def test_contradictory_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        dataset("rows.tsv", **settings)


def test_hopeless_file_is_stopped_at_the_ceiling(tmp_path):
    lines = good_lines(500)
    spoilt = [changed(line, 0, "2") if number % 2 else line for number, line in enumerate(lines)]
    assert_refused(tmp_path, spoilt, "more than 100 lines are rejected", "dataset.max_rejected", max_rejected=100)
    assert accepted(build(tmp_path, spoilt, max_rejected=250)) == 250


def test_ceiling_counts_over_all_files(tmp_path):
    files, _ = days(tmp_path, [3, 4])
    for file in map(Path, files):
        file.write_text(file.read_text() + "nonsense\n" * 3)
    with pytest.raises(DataError, match="more than 5 lines"):
        prepare(dataset(files, max_rejected=5), tmp_path / "store")


@pytest.mark.parametrize(("declared", "like"), [("kaggle", "terabyte"), ("terabyte", "kaggle")])
def test_rows_that_look_like_the_other_set_are_warned_of(tmp_path, caplog, declared, like):
    lines = good_lines(1200, missing=0)
    empty = 2 if like == "terabyte" else 39
    lines = [changed(line, empty, "") if number % 3 == 0 else line for number, line in enumerate(lines)]
    store = build(tmp_path, lines, variant=declared)
    assert f"as in {like}" in caplog.text
    assert store.manifest.missing is not None
    assert store.manifest.missing[empty - 1] == 400
    caplog.clear()
    build(tmp_path, lines, variant=like)
    assert "as in" not in caplog.text


def test_reopened_store_says_which_variant_it_is(tmp_path):
    store = build(tmp_path, good_lines(5), variant="terabyte", text={"pad_missing_tail": True})
    settings = open_store(store.path).manifest.settings
    assert (settings["variant"], settings["text"]["pad_missing_tail"]) == ("terabyte", True)
