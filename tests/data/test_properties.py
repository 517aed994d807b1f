"""Properties that hold for any input: what a line becomes depends on the line alone, and no bytes break the preparation."""

import gzip
import hashlib
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshrec.data import criteo, source
from meshrec.data.columns import DataError
from meshrec.data.layout import Layout
from meshrec.data.parse import parse_lines
from meshrec.data.prepare import prepare

from .criteo_text import ROWS, accepted, dataset, fields, good_lines, slow_parse, spoiled

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 2**32)
LAYOUTS = [
    Layout(),
    Layout(separator=b","),
    Layout(index=True),
    Layout(labelled=False),
    Layout(floats=True),
    Layout(pad=True),
    Layout(separator=b",", index=True, labelled=False, floats=True, pad=True),
]


@pytest.fixture
def patched(monkeypatch):
    """Sets the sizes that a build is cut into."""

    def patch(chunk, checkpoint):
        monkeypatch.setattr(source, "CHUNK_BYTES", chunk)
        monkeypatch.setattr(criteo, "CHECKPOINT_CHUNKS", checkpoint)

    return patch


def lines_of(seed, number):
    rng = random.Random(seed)
    return ["\t".join(spoiled(rng, fields(rng)) if rng.random() < 0.4 else fields(rng)) for _ in range(number)]


def files_of(folder):
    """Hash of each file of a store but the manifest, which names the source."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.name != "manifest.json"
    }


@settings(EXAMPLES, max_examples=20)
@given(
    seed=seeds,
    chunk=st.integers(1, 40_000),
    checkpoint=st.integers(1, 9),
    workers=st.integers(1, 5),
    end=st.sampled_from(["\n", "\r\n"]),
    zipped=st.booleans(),
)
def test_chunks_and_workers_change_no_byte(patched, seed, chunk, checkpoint, workers, end, zipped):
    text = end.join([*good_lines(3), *lines_of(seed, 60)]).encode()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows").write_bytes(text)
        patched(4 << 20, 64)
        whole = files_of(prepare(dataset(folder / "rows"), folder / "whole", 1).path)
        (folder / "rows").write_bytes(gzip.compress(text) if zipped else text)
        patched(chunk, checkpoint)
        assert files_of(prepare(dataset(folder / "rows"), folder / "store", workers).path) == whole


@EXAMPLES
@given(seed=seeds, number=st.integers(2, 50))
def test_any_permutation_of_lines_permutes_the_rows(seed, number):
    lines = good_lines(number, seed)
    order = np.random.default_rng(seed).permutation(number)
    straight = parse_lines("\n".join(lines).encode(), Layout(), np.array(ROWS)).rows
    permuted = parse_lines("\n".join(lines[place] for place in order).encode(), Layout(), np.array(ROWS)).rows
    for name in ("labels", "dense", "sparse"):
        np.testing.assert_array_equal(getattr(permuted, name), getattr(straight, name)[order])


@EXAMPLES
@given(seed=seeds, layout=st.sampled_from(LAYOUTS))
def test_a_line_is_the_same_alone_and_among_others(seed, layout):
    """A line that is parsed alone is read carefully, one that others follow fast: both agree on every line."""
    rng = random.Random(seed)
    lines = []
    for line in lines_of(seed, 30):
        parts = line.split("\t")[0 if layout.labelled else 1 :]
        if layout.floats and rng.random() < 0.5:
            parts[3:4] = [f"{rng.randrange(99)}.0"]
        if layout.index and rng.random() < 0.95:
            parts.insert(0, "i" * rng.randrange(70))
        lines.append(layout.separator.decode().join(parts))
    together = parse_lines("".join(f"{line}\n" for line in lines).encode(), layout, None)
    alone = [parse_lines(f"{line}\n".encode(), layout, None) for line in lines]
    bad = {int(line): (int(code), int(field)) for line, _, code, field in together.bad}
    assert bad == {number: tuple(one.bad[0, 2:].tolist()) for number, one in enumerate(alone) if len(one.bad)}
    for name in ("labels", "dense", "sparse"):
        np.testing.assert_array_equal(getattr(together.rows, name), np.concatenate([getattr(one.rows, name) for one in alone]))
    np.testing.assert_array_equal(together.gone, np.concatenate([one.gone for one in alone]))
    np.testing.assert_array_equal(together.missing, sum(one.missing for one in alone))


@EXAMPLES
@given(seed=seeds)
def test_good_rows_are_those_of_a_slow_parser(seed):
    text = "\n".join(lines_of(seed, 40)).encode()
    parsed = parse_lines(text, Layout(), np.array(ROWS))
    labels, dense, sparse = slow_parse(text, ROWS)
    np.testing.assert_array_equal(parsed.rows.labels, labels)
    np.testing.assert_array_equal(parsed.rows.dense, dense.reshape(-1, 13))
    np.testing.assert_array_equal(parsed.rows.sparse, sparse.reshape(-1, 26))
    assert len(parsed.rows) + len(parsed.bad) == parsed.lines


VARIANTS = [
    {},
    {"text": {"pad_missing_tail": True}},
    {"text": {"separator": "comma", "header": True, "index_column": True, "float_integers": True}},
    {"labelled": False},
    {"categories": {"kind": "vocabulary", "min_count": 2}},
]
rubbish = st.one_of(
    st.binary(max_size=3000),
    st.lists(
        st.sampled_from([b"\t", b",", b"\n", b"\r\n", b"0", b"1", b"12345678", b"-", b"\x00", b"\xff", b"PAR1", b"5.0"]),
        max_size=400,
    ).map(b"".join),
)


@EXAMPLES
@given(
    start=st.sampled_from([b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"\xef\xbb\xbf"]),
    middle=rubbish,
    variant=st.sampled_from(VARIANTS),
    valid=st.booleans(),
)
def test_any_bytes_are_a_store_or_a_sentence(patched, start, middle, variant, valid):
    """No traceback of another class, no hang, and nothing left where the bytes were refused."""
    patched(500, 2)
    good = "".join(f"{line}\n" for line in good_lines(5)).encode() if valid else b""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows").write_bytes(start + good + middle)
        store = sentence = None
        try:
            store = prepare(dataset(folder / "rows", **variant), folder / "store", 2)
        except DataError as error:
            sentence = str(error)
        if store is None:
            assert sentence
            assert [entry.name for entry in folder.iterdir() if entry.name not in ("rows", ".store.lock")] == []
        else:
            lines = (good + middle).count(b"\n") + (not (good + middle).endswith(b"\n"))
            assert accepted(store) + sum(store.manifest.rejected.values()) == lines


@EXAMPLES
@given(seed=seeds, kept=st.floats(0.01, 0.999))
def test_a_file_cut_anywhere_never_loses_or_invents_a_row(seed, kept):
    """Compressed text that ends early is an error; plain text that does loses its tail and nothing else."""
    text = "".join(f"{line}\n" for line in good_lines(60, seed, missing=0)).encode()
    cut = text[: int(len(text) * kept)]
    whole, part = (parse_lines(data, Layout(), np.array(ROWS)) for data in (text, cut))
    complete = cut.count(b"\n")
    assert complete <= len(part.rows) <= complete + 1
    np.testing.assert_array_equal(part.rows.dense[:complete], whole.rows.dense[:complete])
    np.testing.assert_array_equal(part.rows.sparse[:complete], whole.rows.sparse[:complete])
    # a row that ends just before its last category looks whole; the preparation warns of text without a last line end
    np.testing.assert_array_equal(part.rows.sparse[complete:, :25], whole.rows.sparse[complete : len(part.rows), :25])
