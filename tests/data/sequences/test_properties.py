"""Properties of any input: the order of lines says nothing where times differ, and no bytes break the preparation."""

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshrec.data.columns import DataError

from .builds import HEAD, build, sequences_of

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
IDS = st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters=',"'), min_size=1, max_size=4).filter(
    lambda text: text == text.strip()
)


def prepared(text, form="csv", **changes):
    """Manifest and sequences of a text, or None where it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            store = build(Path(folder), text, form, **changes)
        except DataError as error:
            assert not (Path(folder) / "store").exists()
            return None, str(error)
        store.verify()
        return store.manifest, sequences_of(store)


@st.composite
def events(draw, ties):
    """(user, item, time) in any order."""
    users, items = (draw(st.lists(IDS, min_size=1, max_size=5, unique=True)) for _ in range(2))
    size = draw(st.integers(1, 40))
    times = draw(st.lists(st.integers(-9, 9) if ties else st.integers(), min_size=size, max_size=size, unique=not ties))
    times = [time % 10**18 if abs(time) >= 10**18 else time for time in times]
    return [(draw(st.sampled_from(users)), draw(st.sampled_from(items)), time) for time in times]


def lines(rows):
    return HEAD + "".join(f"{user},{item},5,{time}\n" for user, item, time in rows)


def expected(rows, min_user, min_item, newest_first):
    """The definition, in plain Python."""
    rows = list(reversed(rows)) if newest_first else list(rows)
    while True:
        users, items = Counter(user for user, _, _ in rows), Counter(item for _, item, _ in rows)
        kept = [row for row in rows if users[row[0]] >= min_user and items[row[1]] >= min_item]
        if len(kept) == len(rows):
            break
        rows = kept
    found = {}
    for user in sorted({user for user, _, _ in rows}, key=str.encode):
        own = [(time, place, item) for place, (other, item, time) in enumerate(rows) if other == user]
        found[user] = [item for _, _, item in sorted(own)]
    return found


@EXAMPLES
@given(rows=events(ties=False), seed=st.integers(0, 2**32))
def test_any_order_of_lines_with_different_times_gives_the_same_store(rows, seed):
    if len({time for _, _, time in rows}) < len(rows):
        return
    one, sequences = prepared(lines(rows))
    shuffled = random.Random(seed).sample(rows, len(rows))
    other, others = prepared(lines(shuffled), newest_first=bool(seed % 2))
    assert sequences == others or one is other is None
    assert one is None or one.data_hash == other.data_hash


@EXAMPLES
@given(rows=events(ties=True), min_user=st.integers(3, 5), min_item=st.integers(1, 4), newest_first=st.booleans())
def test_order_and_filters_follow_their_definition(rows, min_user, min_item, newest_first):
    wanted = expected(rows, min_user, min_item, newest_first)
    manifest, found = prepared(lines(rows), min_user_events=min_user, min_item_events=min_item, newest_first=newest_first)
    if not wanted:
        assert manifest is None
        assert "none is left" in found
        return
    assert found == wanted
    assert list(found) == list(wanted), "users in the order of their bytes"
    assert manifest.counts.events == sum(map(len, wanted.values()))
    assert manifest.duplicates == len(rows) - len(set(rows))


@EXAMPLES
@given(
    form=st.sampled_from(["user_lines", "pairs", "inter", "csv", "json_lines"]),
    start=st.sampled_from(
        [
            b"",
            HEAD.encode(),
            b"user_id:token\titem_id:token\ttimestamp:float\n",
            b'{"user_id":',
            b"u1 a b c\n",
            b"\x1f\x8b",
            b"\xef\xbb\xbf",
        ]
    ),
    body=st.binary(max_size=200) | st.text('u1a,\t "\n\r:{}[]', max_size=200).map(str.encode),
)
def test_no_bytes_break_the_preparation(form, start, body):
    manifest, found = prepared(start + body, form)
    if manifest is not None:
        assert all(len(items) >= 3 for items in found.values())
        assert manifest.counts.users == len(found)


@pytest.mark.parametrize("form", ["csv", "inter"])
@EXAMPLES
@given(
    rows=events(ties=True),
    bad=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["x", ",,,", "u1,a,5,t", "\0,b,5,1"])), max_size=5),
)
def test_bad_lines_change_no_other(form, rows, bad):
    text = lines(rows).splitlines(keepends=True) if form == "csv" else None
    if text is None:
        text = ["user_id:token\titem_id:token\ttimestamp:float\n", *(f"{u}\t{i}\t{t}\n" for u, i, t in rows)]
        text = [line for line in text if line.count("\t") == 2]
    whole, sequences = prepared("".join(text), form)
    for place, line in bad:
        text.insert(1 + place % len(text), line + "\n")
    spoiled, others = prepared("".join(text), form)
    if whole is not None:
        assert others == sequences
        assert spoiled.data_hash == whole.data_hash
        assert sum(spoiled.rejected.values()) == len(bad)
