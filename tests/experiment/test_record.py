import json
from pathlib import Path

import pytest

from meshrec.experiment.record import Hashes, RecordError, RunRecord, read_record, write_json, write_record


@pytest.fixture
def record():
    return RunRecord(
        experiment="smoke",
        ranks=2,
        seed=0,
        cell="1d.plain.strong",
        status="ok",
        factors={"layout": "1d"},
        settings={"lr": 0.05},
        settings_hash="0" * 16,
        analysis_hash="1" * 16,
        hashes=Hashes(init="a", order="b", plan="c", data="d"),
        environment={"torch": "2.13.0"},
        started_at="2026-01-01T00:00:00Z",
        wall_seconds=1.25,
    )


def test_a_record_survives_the_round_trip(tmp_path, record):
    path = tmp_path / "new" / "folder" / "1d.plain.strong.json"
    write_record(path, record)
    assert read_record(path) == record
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, value):
    path = tmp_path / "record.json"
    write_json(path, {"old": True})
    with pytest.raises((ValueError, TypeError)):
        write_json(path, {"padding": "x" * 100_000, "value": value})
    assert json.loads(path.read_text()) == {"old": True}
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]


def test_an_unfinished_file_is_never_visible_under_the_records_name(tmp_path, record, monkeypatch):
    """Looks at the folder in the last moment before the rename: what a kill would leave behind."""
    path = tmp_path / "record.json"
    seen = []
    real = Path.replace

    def look(self, target):
        seen.extend(entry.name for entry in tmp_path.glob("*.json"))
        assert self.name.startswith(".record.json.")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", look)
    write_record(path, record)
    assert seen == []
    assert path.exists()


def test_a_record_can_be_read_by_others_of_the_group_like_any_file(tmp_path, record):
    plain = tmp_path / "plain"
    plain.touch()
    path = tmp_path / "record.json"
    write_record(path, record)
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_truncated_record_is_refused_at_every_length(tmp_path, record):
    path = tmp_path / "record.json"
    write_record(path, record)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(RecordError, match=r"record\.json: file: Invalid JSON.*delete it and run its block again"):
            read_record(path)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"status": "fine"}, "status"),
        ({"surprise": 1}, "surprise"),
        ({"wall_seconds": "long"}, "wall_seconds"),
        ({"hashes": {"init": "a"}}, "hashes.order"),
        ({"ranks": None}, "ranks"),
    ],
)
def test_a_foreign_record_is_refused_by_file_and_field(tmp_path, record, change, field):
    path = tmp_path / "record.json"
    write_json(path, record.model_dump(mode="json") | change)
    with pytest.raises(RecordError, match=rf"record\.json: {field}: "):
        read_record(path)


def test_a_missing_or_undecodable_record_is_refused_by_file(tmp_path):
    with pytest.raises(RecordError, match=r"absent\.json: can't be read: No such file"):
        read_record(tmp_path / "absent.json")
    path = tmp_path / "record.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"record\.json"):
        read_record(path)
