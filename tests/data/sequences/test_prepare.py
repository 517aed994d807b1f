"""From text of every format to a store: order, ids, faults, and what is left behind."""

import gzip
import json
import re

import numpy as np
import pytest

from meshrec.cli import main
from meshrec.data.columns import DataError
from meshrec.data.sequences import text as text_module
from meshrec.data.sequences.options import OF_SUFFIXES
from meshrec.data.sequences.prepare import prepare_sequences
from meshrec.data.sequences.store import open_sequences
from meshrec.data.store import StoreError
from meshrec.experiment.sequences import SequenceDataset

from .builds import HEAD, build, rejected_lines, sequences_of

U1 = {"u1": ["a", "b", "c"]}
AMAZON = {"user": "reviewerID", "item": "asin", "time": "unixReviewTime"}
SIX = "u1,{},5,1\nu1,{},5,2\nu1,{},5,3\nu2,b,1,9\nu2,a,1,8\nu2,b,1,7\n"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"format": "user_lines"}, "u1 a b c\n"),
        ({"format": "user_lines"}, "u1\ta  b\tc "),
        ({"format": "pairs"}, "u1 a\nu1 b\nu1 c\n"),
        ({"format": "inter"}, "user_id:token\titem_id:token\ttimestamp:float\nu1\tc\t3\nu1\tb\t2.0\nu1\ta\t1\n"),
        ({"format": "inter", "time": None}, "x:float\titem_id:token\tuser_id:token\n\ta\tu1\n\tb\tu1\n\tc\tu1\n"),
        (
            {"format": "inter", "item": "list", "target": "next", "time": "t"},
            "user_id:token\tlist:token_seq\tnext:token\tt:float_seq\nu1\ta b\tc\t1 1 2\n",
        ),
        (
            {"format": "inter", "item": "list", "target": "next", "time": None},
            "user_id:token\tlist:token_seq\tnext:token_seq\nu1\t\ta b c\n",
        ),
        ({"format": "csv"}, HEAD + "u1,c,5,3\nu1,a,5,-1\nu1,b,,2\n"),
        ({"format": "csv"}, "timestamp,item_id,user_id\n3,c,u1\n1,a,u1\n2,b,u1\n"),
        ({"format": "csv", "separator": "tab", "time": None}, "user_id\titem_id\nu1\ta\nu1\tb\nu1\tc\n"),
        (
            {"format": "csv", "separator": "semicolon", "columns": ["item_id", "user_id", "", "timestamp"]},
            "c;u1;;3\nb;u1;;2\na;u1;;1",
        ),
        ({"format": "csv"}, '"user_id","item_id","timestamp"\n"u1","c","3"\nu1,b,2\nu1,"a",1\n'),
        (
            {"format": "json_lines", **AMAZON},
            "".join(
                f'{{"reviewText": "line\\nwith, \\"all\\"", "reviewerID": "u1", "asin": "{item}", "unixReviewTime": {time}}}\n'
                for item, time in zip("cab", (1e0 * 3, 1, '"2"'), strict=True)
            ),
        ),
    ],
)
def test_every_format_gives_the_same_events(tmp_path, form, text):
    store = build(tmp_path, text, form)
    assert sequences_of(store) == U1
    assert store.manifest.rejected == {}
    assert (store.items.tolist(), store.starts.tolist()) == ([1, 2, 3], [0, 3])
    assert (store.items.dtype, store.starts.dtype) == (np.int32, np.int64)
    assert (store.times is None) == (form["format"] in ("user_lines", "pairs") or form.get("time", "") is None)


def test_the_order_is_that_of_time_then_of_lines(tmp_path):
    store = build(tmp_path, HEAD + SIX.format("z", "a", "m").replace("1\nu1,a,5,2", "7\nu1,a,5,7").replace("5,3", "5,7"))
    assert sequences_of(store) == {"u1": ["z", "a", "m"], "u2": ["b", "a", "b"]}
    assert store.times.tolist() == [7, 7, 7, 7, 8, 9]


def test_newest_first_reverses_ties_and_nothing_else(tmp_path, caplog):
    text = HEAD + "u1,d,5,3\nu1,c,5,2\nu1,b,5,2\nu1,a,5,1\n"
    assert sequences_of(build(tmp_path, text)) == {"u1": ["a", "c", "b", "d"]}
    assert "seems to go back in time, and 1 events are at the same time" in caplog.text
    caplog.clear()
    assert sequences_of(build(tmp_path, text, newest_first=True)) == {"u1": ["a", "b", "c", "d"]}
    assert sequences_of(build(tmp_path, "u1 c b a\n", "user_lines", newest_first=True)) == U1
    assert "back in time" not in caplog.text


@pytest.mark.parametrize("times", [(1500000000, 1500000001, 1500000002), (1500000000000, 1500000000001, 10**17), (-5, 0, 5)])
def test_times_are_kept_as_given(tmp_path, times):
    store = build(tmp_path, HEAD + "".join(f"u,i{time},5,{time}\n" for time in reversed(times)))
    assert store.times.tolist() == list(times)


def test_ids_are_text(tmp_path):
    ids = ["007", "7", "7.0", "1e3", "1000", "nan", "None", "é", "e\u0301", "0x1f", "\u2028", "a b", "-"]
    ids = [text for text in ids if text.strip()]
    lines = [f"{user},{item},1,{time}\n" for user in ("1", "1.0", "01") for time, item in enumerate(ids)]
    store = build(tmp_path, HEAD + "".join(lines))
    assert sequences_of(store) == dict.fromkeys(sorted(["1", "1.0", "01"]), ids)
    assert store.ids("items") == sorted(ids)
    numbers = "".join(
        f'{{"user_id": {user}, "item_id": {item}, "timestamp": {item}}}\n' for user in (7, '"007"') for item in (10**30, 2, 3)
    )
    store = build(tmp_path, numbers.replace(f'"timestamp": {10**30}', '"timestamp": 9'), "json_lines")
    assert sequences_of(store) == {"007": ["2", "3", str(10**30)], "7": ["2", "3", str(10**30)]}


GOOD = "u1,a,5,1\nu1,b,5,2\nu1,c,5,3\n"
GOOD_JSON = "".join(f'{{"user_id": "u1", "item_id": "{item}", "timestamp": {time}}}\n' for time, item in enumerate("abc"))
GOOD_LIST = "user_id:token\titem_id_list:token_seq\tt:float_seq\nu1\ta b c\t1 2 3\n"
LIST = {"format": "inter", "item": "item_id_list", "time": "t"}


@pytest.mark.parametrize(
    ("form", "good", "bad", "reason", "field", "found"),
    [
        ("csv", HEAD + GOOD, ",x,5,4", "id", "user_id", "''"),
        ("csv", HEAD + GOOD, "u1,  ,5,4", "id", "item_id", "'  '"),
        ("csv", HEAD + GOOD, "u1, x,5,4", "id", "item_id", "' x'"),
        ("csv", HEAD + GOOD, "u1,x\0,5,4", "id", "item_id", r"'x\x00'"),
        ("csv", HEAD + GOOD, "u1,x\ry,5,4", "id", "item_id", r"'x\ry'"),
        ("csv", HEAD + GOOD, "u1,x,5,", "time", "timestamp", "''"),
        ("csv", HEAD + GOOD, "u1,x,5,9.7e8", "time", "timestamp", "'9.7e8'"),
        ("csv", HEAD + GOOD, "u1,x,5,5.5", "time", "timestamp", "'5.5'"),
        ("csv", HEAD + GOOD, "u1,x,5,1234567890123456789", "time", "timestamp", "'1234567890123456789'"),
        ("csv", HEAD + GOOD, "u1,x,5,2014-07-23", "time", "timestamp", "'2014-07-23'"),
        ("csv", HEAD + GOOD, "u1,x,5,\u0664", "time", "timestamp", r"'\u0664'"),
        ("csv", HEAD + GOOD, "u1,x,5", "columns", "row", "3 columns"),
        ("csv", HEAD + GOOD, "u1,x,5,4,", "columns", "row", "5 columns"),
        ("csv", HEAD + GOOD, 'u1,"x,5,4', "quotes", "row", None),
        ("csv", HEAD + GOOD, "", "blank", "row", "blank line"),
        ("csv", HEAD + GOOD, b"u1,\xff,5,4", "encoding", "row", r"'\xff,5,4' at byte 4"),
        ("user_lines", "u1 a b c\n", "u2", "columns", "row", "a user without items"),
        ("user_lines", "u1 a b c\n", "u1 x y z", "user", "user", "'u1' again, first in line 1"),
        ("user_lines", "u1 a b c\n", "u2 x\0 y z", "id", "item", r"'x\x00'"),
        ("pairs", "u1 a\nu1 b\nu1 c\n", "u1 x 5", "columns", "row", "3 columns"),
        ("json_lines", GOOD_JSON, "{", "json", "row", None),
        ("json_lines", GOOD_JSON, "[" * 100_000, "json", "row", None),
        ("json_lines", GOOD_JSON, "7", "json", "row", "'7'"),
        ("json_lines", GOOD_JSON, '{"user_id": "u1", "timestamp": 1}', "json", "item_id", "keys 'user_id, timestamp'"),
        ("json_lines", GOOD_JSON, '{"user_id": "u1", "item_id": 7.0, "timestamp": 1}', "id", "item_id", "'7.0'"),
        ("json_lines", GOOD_JSON, '{"user_id": null, "item_id": "x", "timestamp": 1}', "id", "user_id", "'None'"),
        ("json_lines", GOOD_JSON, '{"user_id": true, "item_id": "x", "timestamp": 1}', "id", "user_id", "'True'"),
        ("json_lines", GOOD_JSON, '{"user_id": "u1", "item_id": "x", "timestamp": NaN}', "time", "timestamp", "'NaN'"),
        ("json_lines", GOOD_JSON, '{"user_id": "u1", "item_id": "x", "timestamp": null}', "time", "timestamp", "'None'"),
        ("json_lines", GOOD_JSON, '{"user_id": "u1", "item_id": "\\ud800", "timestamp": 1}', "id", "item_id", r"'\ud800'"),
        (
            "json_lines",
            GOOD_JSON,
            '{"user_id": "u1", "item_id": "x", "item_id": "y", "timestamp": 1}',
            "json",
            "item_id",
            "the key twice",
        ),
        (LIST, GOOD_LIST, "u2\ta b c\t1 2", "time", "t", "2 times"),
        (LIST, GOOD_LIST, "u2\ta  c\t1 2 3", "id", "item_id_list", "''"),
        (LIST, GOOD_LIST, "u2\t\t", "columns", "item_id_list", "no items"),
        (LIST, GOOD_LIST, "u1\ta b\t1 2", "user", "user_id", "'u1' again, first in line 2"),
    ],
)
def test_a_bad_line_is_named_and_changes_no_other(tmp_path, form, good, bad, reason, field, found):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    store = build(tmp_path, good.encode() + bad + b"\n", form)
    assert sequences_of(store) == U1
    assert store.manifest.rejected == {reason: 1}
    ((line, said_field, said_found, wanted),) = rejected_lines(store)
    assert (int(line), said_field) == (good.count("\n") + 1, field)
    assert found is None or said_found == found
    assert wanted.startswith("want ")
    assert store.manifest.lines == good.count("\n") + 1


def test_a_rejected_user_or_item_is_in_no_vocabulary(tmp_path):
    store = build(tmp_path, HEAD + GOOD + "u9,z,5,4,\nu8,y,5,x\nu7,,5,3\n")
    assert (store.ids("users"), store.ids("items")) == (["u1"], ["a", "b", "c"])
    assert store.manifest.read == store.manifest.counts


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        (
            "csv",
            "user,item,timestamp\n1,2,3\n",
            r"line 1: no column 'user_id'; found \['user', 'item', 'timestamp'\]; set user",
        ),
        ("csv", GOOD, r"line 1: no column 'user_id'; found \['u1', .* or columns if the file has no header line"),
        ("csv", HEAD.replace(",", ";") + GOOD, "or separator"),
        ("csv", "user_id,user_id,item_id,timestamp\n", "2 columns named 'user_id'"),
        ({"format": "csv", "columns": ["user_id", "item_id", "x", "timestamp"]}, HEAD + GOOD, "line 1: found .* a header line"),
        ({"format": "csv", "columns": ["user_id", "item_id"], "time": None}, "User,ASIN\nu1,a\n", "a header line"),
        ("csv", 'user_id,"item_id\n', "line 1: found unexpected end of data"),
        ("csv", HEAD, "has a header line and no events"),
        (
            "csv",
            HEAD + "u1,a\nu1\n",
            "all 2 lines are rejected .columns 2.; the first: .*: line 2: row: found 2 columns, want 4",
        ),
        ("csv", HEAD + "u1,a,5,1\nu1,b,5,2\nu2,a,5,1\n", "of 2 users none is left with 3 events"),
        ("csv", "", "is empty"),
        ("csv", "\n" + HEAD, "line 1: found blank line"),
        ("csv", b"\xff\xfeu\0s\0", "UTF-16"),
        ("csv", b"\xffuser_id", "line 1: found .* want UTF-8"),
        ("inter", "196\t242\t3\t881250949\n", "line 1: found '196.* want RecBole's header of tab-separated name:type"),
        ("inter", "user_id:token\titem_id:float\ttimestamp:float\n", "'item_id' has type float, want token or token_seq"),
        ("inter", "user_id:float\titem_id:token\ttimestamp:float\n", "'user_id' has type float, want token"),
        (
            "inter",
            "user_id:token\titem_id_list:token_seq\n",
            r"no column 'item_id'; found \['user_id', 'item_id_list'\]; set item",
        ),
        ("inter", "user_id:token\titem_id:token\n", "no column 'timestamp'"),
        ({"format": "inter", "target": "x"}, "user_id:token\titem_id:token\ttimestamp:float\tx:token\n", "target needs"),
        ("json_lines", '[{"user_id": 1}]', "line 1: found .* turn the array into lines"),
        ("json_lines", "{'user_id': 1}\n", "all 1 lines are rejected"),
        ("pairs", "u1 a b c\n", "one user a line is format user_lines"),
        ("pairs", b"PK\x03\x04...", "is a zip archive"),
        ("pairs", b"PAR1....PAR1", "is a Parquet file"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, form, text, message):
    with pytest.raises(DataError, match=message):
        build(tmp_path, text, form)
    assert not (tmp_path / "store").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) in ([".store.lock", "events.txt"], ["events.txt"])


def test_many_bad_lines_end_the_preparation(tmp_path):
    with pytest.raises(
        DataError, match=r"events.txt: line 7: more than 2 lines are rejected \(columns 2, time 1\); the first: .*line 5"
    ):
        build(tmp_path, HEAD + GOOD + "x\ny\nu1,d,5,t\n", max_rejected=2)
    assert build(tmp_path, HEAD + GOOD + "x\ny\n", max_rejected=2).manifest.rejected == {"columns": 2}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_line_ends_marks_and_compression_change_nothing(tmp_path, ends, mark, pack, monkeypatch):
    plain = build(tmp_path, HEAD + GOOD).manifest.data_hash
    monkeypatch.setattr(text_module, "READ_BYTES", 7)
    body = mark + (HEAD + GOOD).replace("\n", ends).encode()
    assert build(tmp_path, pack(body), name="other.csv.gz").manifest.data_hash == plain
    assert build(tmp_path, pack(body.removesuffix(ends.encode()))).manifest.data_hash == plain


def test_a_truncated_file_leaves_nothing(tmp_path):
    text = HEAD + "".join(f"u{number},i{number % 7},5,{number}\n" for number in range(5000)) + GOOD
    with pytest.raises(DataError, match="can't be read to its end"):
        build(tmp_path, gzip.compress(text.encode())[:-200])
    assert not (tmp_path / "store").exists()


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "LONGEST_LINE", 1 << 20)
    with pytest.raises(DataError, match="a line is longer than"):
        build(tmp_path, b"u1 a" * (1 << 20), "user_lines")


def test_duplicates_are_counted_and_dropped_if_asked(tmp_path, caplog):
    text = HEAD + GOOD + "u1,b,4,2\nu1,x,5,2\nu1,b,5,2\nu1,b,5,9\n"
    kept = build(tmp_path, text)
    assert (sequences_of(kept)["u1"], kept.manifest.duplicates) == (["a", "b", "b", "x", "b", "c", "b"], 2)
    assert "2 events are like another in user, item and time; they are kept" in caplog.text
    dropped = build(tmp_path, text, duplicates="drop")
    assert (sequences_of(dropped)["u1"], dropped.manifest.duplicates) == (["a", "b", "x", "c", "b"], 2)
    with pytest.raises(ValueError, match="drop needs times"):
        SequenceDataset.model_validate({"path": "x", "text": {"format": "pairs"}, "duplicates": "drop"})


def test_filters_are_repeated_until_they_find_nothing(tmp_path, caplog):
    # d and e are rare; without them u3 has too few; without u3, c is rare; without c, u2 has too few
    store = build(tmp_path, "u1 a b a b\nu2 a b c\nu3 c d e\n", "user_lines", min_item_events=2)
    assert sequences_of(store) == {"u1": ["a", "b", "a", "b"]}
    assert store.manifest.core_rounds == 4
    assert "left out by the filters: 2 users, 3 items, 6 events" in caplog.text
    assert (store.manifest.read.users, store.manifest.counts.users) == (3, 1)


def test_a_store_is_reused_only_if_it_is_whole_and_the_same(tmp_path):
    store = build(tmp_path, HEAD + GOOD)
    before = (store.path / "items.npy").stat().st_mtime_ns

    def rebuilt(**settings):
        again = build(tmp_path, HEAD + GOOD, **settings)
        nonlocal before
        changed, before = (again.path / "items.npy").stat().st_mtime_ns != before, (again.path / "items.npy").stat().st_mtime_ns
        return changed

    assert not rebuilt()
    assert rebuilt(min_item_events=1, newest_first=True)
    assert rebuilt()
    with (store.path / "users.txt").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match=r"users\.txt: its sha256 is"):
        open_sequences(store.path).verify()
    assert rebuilt()
    open_sequences(store.path).verify()
    (tmp_path / "events.txt").write_text(HEAD + GOOD + "u1,d,1,9\n")
    again = prepare_sequences(
        SequenceDataset.model_validate({"path": str(tmp_path / "events.txt"), "text": {"format": "csv"}}), store.path
    )
    assert again.manifest.counts.events == 4


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "manifest.json").unlink(), "manifest.json: not found"),
        (lambda path: (path / "items.npy").unlink(), "items.npy"),
        (lambda path: (path / "items.txt").unlink(), "items.txt: not found"),
        (lambda path: np.save(path / "items.npy", np.zeros(2, np.int32)), r"found <i4 \[2\], want <i4 \[3\]"),
        (lambda path: np.save(path / "starts.npy", np.zeros(2, np.int32)), r"starts.npy: found <i4"),
        (
            lambda path: (path / "manifest.json").write_text(
                (path / "manifest.json").read_text().replace('"lines": 4', '"lines": 5')
            ),
            "checksum",
        ),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json: file"),
    ],
)
def test_damage_is_named(tmp_path, spoil, message):
    store = build(tmp_path, HEAD + GOOD)
    spoil(store.path)
    with pytest.raises(StoreError, match=message):
        open_sequences(store.path)


def test_another_folder_is_not_replaced(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"thesis\.tex"):
        build(tmp_path, HEAD + GOOD)
    assert (tmp_path / "store" / "thesis.tex").read_text() == "x"


def run(capsys, *arguments):
    status = main(["prepare-sequences", *map(str, arguments)])
    return status, capsys.readouterr()


def test_the_command_builds_what_its_options_say(tmp_path, capsys):
    file = tmp_path / "ratings.csv"
    file.write_text(GOOD + "u1,c,1,3\nu1,c,1,9\nx\n")
    out = tmp_path / "out"
    columns = ("--columns", "u,i,r,t", "--user", "u", "--item", "i", "--time", "t")
    status, said = run(capsys, file, "--out", out, *columns, "--duplicates", "drop", "--max-rejected", 1)
    assert (status, said.out.strip()) == (0, str(out))
    assert sequences_of(open_sequences(out)) == {"u1": ["a", "b", "c", "c"]}
    settings = json.loads((out / "manifest.json").read_text())["settings"]
    assert settings["text"] == {
        "format": "csv",
        "separator": "comma",
        "columns": ["u", "i", "r", "t"],
        "user": "u",
        "item": "i",
        "time": "t",
    }
    assert (settings["duplicates"], settings["max_rejected"]) == ("drop", 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("x.txt", [], "--format: .* doesn't tell by its suffix"),
        ("x.inter", ["--columns", "a,b"], "--columns: format inter has no such field"),
        ("x.csv", ["--min-user-events", "2"], "--min-user-events: Input should be greater than or equal to 3"),
        ("x.csv", ["--no-time", "--duplicates", "drop"], "drop needs times"),
        ("x.csv", ["--no-time", "--time", "t"], "--no-time: contradicts --time"),
        ("x.csv", ["--columns", "a,b"], "has no 'user_id'"),
        ("missing.csv", [], "is no file"),
        ("$NOT_SET/x.csv", [], r"\$NOT_SET is not set"),
    ],
)
def test_options_that_make_no_sense_are_named(tmp_path, capsys, name, options, message):
    (tmp_path / "x.csv").write_text(HEAD + GOOD)
    status, said = run(capsys, tmp_path / name, "--out", tmp_path / "out", *options)
    assert status == 2
    assert "Traceback" not in said.err
    assert re.search(message, said.err)


@pytest.mark.parametrize(
    ("name", "form"), [("a.inter", "inter"), ("a.csv.gz", "csv"), ("a.jsonl", "json_lines"), ("a.b.tsv", "csv")]
)
def test_a_suffix_tells_the_format(tmp_path, capsys, name, form):
    _, said = run(capsys, tmp_path / name, "--out", tmp_path / "out")
    assert "is no file" in said.err
    assert {OF_SUFFIXES[suffix]["format"] for suffix in OF_SUFFIXES if suffix in name} == {form}
