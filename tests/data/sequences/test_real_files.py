"""Real sequences and the fault files, where they can be had."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from meshrec.data.sequences.prepare import prepare_sequences
from meshrec.experiment.sequences import SequenceDataset

from .builds import sequences_of

ELECTRONICS = {"format": "inter", "item": "item_id_list", "target": "items_in_target_basket", "time": "item_time_list"}


@pytest.fixture
def real():
    folder = os.environ.get("MESHREC_REAL_DATA")
    if not folder:
        pytest.skip("MESHREC_REAL_DATA is not set: real and fault files are not part of the project")
    return Path(folder)


def prepared(file, text, tmp_path, **settings):
    return prepare_sequences(SequenceDataset.model_validate({"path": str(file), "text": text, **settings}), tmp_path / "store")


@pytest.mark.parametrize(
    ("file", "text", "users", "items", "events"),
    [
        ("amazon_beauty_5core.txt.gz", {"format": "user_lines"}, 22_363, 12_101, 198_502),
        ("ml-100k.inter.gz", {"format": "inter"}, 943, 1682, 100_000),
        ("amazon_electronics_sample.inter.gz", ELECTRONICS, 6274, 3666, 151_075),
    ],
)
def test_real_files_have_the_counts_that_are_known_of_them(real, tmp_path, file, text, users, items, events):
    manifest = prepared(real / "sequences" / file, text, tmp_path).manifest
    assert (manifest.counts.users, manifest.counts.items, manifest.counts.events) == (users, items, events)
    assert (manifest.read, manifest.rejected) == (manifest.counts, {})


def test_beauty_is_a_five_core_and_every_user_is_as_in_the_file(real, tmp_path):
    file = real / "sequences" / "amazon_beauty_5core.txt.gz"
    store = prepared(file, {"format": "user_lines"}, tmp_path, min_user_events=5, min_item_events=5)
    assert store.manifest.core_rounds == 0
    with gzip.open(file, "rt") as lines:
        assert sequences_of(store) == {user: items for user, *items in map(str.split, lines)}


def test_movielens_is_in_the_order_of_time_with_ties_as_in_the_file(real, tmp_path):
    file = real / "sequences" / "ml-100k.inter.gz"
    store = prepared(file, {"format": "inter"}, tmp_path)
    with gzip.open(file, "rt") as lines:
        rows = [line.split("\t") for line in lines][1:]
    wanted = {}
    for user, item, *_ in sorted(rows, key=lambda row: int(row[3])):
        wanted.setdefault(user, []).append(item)
    assert sequences_of(store) == wanted
    ties = sum(int((np.diff(store.times[a:b]) == 0).sum()) for a, b in zip(store.starts, store.starts[1:], strict=False))
    assert ties > 40_000, "the rule matters"


def test_tied_times_keep_the_order_of_the_file(real, tmp_path):
    store = prepared(real / "faults" / "20_seq_tied_timestamps.csv", {"format": "csv"}, tmp_path)
    assert sequences_of(store) == {"u1": ["i90", "i10", "i50", "i20", "i70"]}


def test_newest_first_is_sorted_by_time(real, tmp_path):
    store = prepared(real / "faults" / "22_seq_newest_first.csv", {"format": "csv"}, tmp_path)
    assert sequences_of(store) == {"u1": ["i1", "i2", "i3", "i4"], "u2": ["i9", "i5", "i2"]}
