"""The store: what is written is what is read, damage is found, and an interrupted build leaves nothing that looks finished."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from meshrec.data.columns import Rows
from meshrec.data.prepare import prepare
from meshrec.data.store import StoreError, open_store
from meshrec.data.writer import StoreWriter
from meshrec.experiment.schema import SyntheticDataset

TABLES = [50] * 26
SETTINGS = {"kind": "synthetic", "train_samples": 3000, "eval_samples": 1000, "table_rows": 50}


def synthetic(**settings) -> SyntheticDataset:
    return SyntheticDataset.model_validate(SETTINGS | settings)


def random_rows(number: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    labels, dense = rng.integers(0, 2, number).astype(np.float32), rng.random((number, 13), np.float32)
    return Rows(labels, dense, rng.integers(0, 50, (number, 26), np.int32))


def written(path, batches):
    with StoreWriter(path) as writer:
        for batch in batches:
            writer.append(batch)
        return writer.finish(7, kind="synthetic", name="synthetic", settings={}, table_rows=TABLES)


def test_rows_come_back_in_order_and_split(tmp_path):
    batches = [random_rows(number, number) for number in (5, 0, 1, 9)]
    store = written(tmp_path / "store", batches)
    assert (len(store.train), len(store.evaluation)) == (7, 8)
    for name in ("labels", "dense", "sparse"):
        wanted = np.concatenate([getattr(batch, name) for batch in batches])
        np.testing.assert_array_equal(np.concatenate([getattr(store.train, name), getattr(store.evaluation, name)]), wanted)
        assert not getattr(store.train, name).flags.writeable
    labels = np.concatenate([batch.labels for batch in batches])
    assert store.manifest.train_click_rate == labels[:7].mean()
    assert store.manifest.evaluation_click_rate == labels[7:].mean()


def test_batching_does_not_change_a_byte(tmp_path):
    rows = random_rows(20)
    one, many = written(tmp_path / "one", [rows]), written(tmp_path / "many", [rows[:3], rows[3:4], rows[4:]])
    assert one.manifest == many.manifest


def test_hashes_are_those_of_sha256sum(tmp_path):
    store = written(tmp_path / "store", [random_rows(20)])
    printed = subprocess.run(
        ["sha256sum", "label.npy", "dense.npy", "sparse.npy"], cwd=store.path, capture_output=True, check=True
    ).stdout
    assert hashlib.sha256(printed).hexdigest() == store.manifest.data_hash
    assert [line.split()[0] for line in printed.decode().splitlines()] == [c.sha256 for c in store.manifest.columns.values()]


def test_wrong_types_are_refused(tmp_path):
    rows = random_rows(3)
    with StoreWriter(tmp_path / "store") as writer, pytest.raises(ValueError, match="sparse: found int64"):
        writer.append(Rows(rows.labels, rows.dense, rows.sparse.astype(np.int64)))  # type: ignore[arg-type]


def test_an_error_leaves_nothing(tmp_path):
    def failing(path):
        with StoreWriter(path) as writer:
            writer.append(random_rows(5))
            assert (tmp_path / ".store.partial").exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing(tmp_path / "store")
    assert [entry.name for entry in tmp_path.iterdir()] == [".store.lock"]


KILLED = """
import sys, numpy as np, time
from pathlib import Path
from meshrec.data import synthetic
from meshrec.data.prepare import prepare
from meshrec.experiment.schema import SyntheticDataset
def slow(*arguments, real=synthetic.generate):
    for part in real(*arguments):
        yield part
        print("one batch written", flush=True); time.sleep(60)
synthetic.generate = slow
prepare(SyntheticDataset.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
"""


def test_killed_build_leaves_nothing_finished_and_the_next_one_cleans_up(tmp_path):
    out, dataset = tmp_path / "store", synthetic()
    build = subprocess.Popen([sys.executable, "-c", KILLED, dataset.model_dump_json(), str(out)], stdout=subprocess.PIPE)
    assert build.stdout is not None
    build.stdout.readline()
    build.send_signal(signal.SIGKILL)
    build.wait()
    assert (tmp_path / ".store.partial").exists()
    assert not out.exists()
    store = prepare(dataset, out)
    store.verify()
    assert not (tmp_path / ".store.partial").exists()


def test_two_builds_at_once_give_one_store(tmp_path):
    code = (
        "import sys, logging; logging.basicConfig(level='INFO', stream=sys.stdout); from pathlib import Path;"
        "from meshrec.data.prepare import prepare; from meshrec.experiment.schema import SyntheticDataset as S;"
        "prepare(S.model_validate_json(sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, synthetic(train_samples=100_000).model_dump_json(), str(tmp_path / "store")]
    builds = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    output = [build.communicate()[0] for build in builds]
    assert [build.returncode for build in builds] == [0, 0], output
    assert sum("preparing synthetic data" in text for text in output) == 1
    open_store(tmp_path / "store").verify()


def test_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert len(written(tmp_path / "store", [random_rows(20)]).train) == 7
    assert "start no second build" in caplog.text


def test_same_settings_are_reused_and_others_built_again(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "store")
    first = open_store(whole)
    stamp = (out / "manifest.json").stat().st_mtime_ns
    assert prepare(synthetic(), out).manifest == first.manifest
    assert (out / "manifest.json").stat().st_mtime_ns == stamp
    other = prepare(synthetic(seed=1), out)
    assert other.manifest.data_hash != first.manifest.data_hash
    assert other.manifest.settings["seed"] == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished store, to be copied before it is damaged."""
    return prepare(synthetic(), tmp_path_factory.mktemp("whole") / "store").path


def damaged(file: Path, how: str) -> None:
    data = file.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]
    file.write_bytes({"flip": flipped, "cut": data[:-9], "grow": data + b"x", "missing": b""}[how])
    if how == "missing":
        file.unlink()


@pytest.mark.parametrize("file", ["label.npy", "dense.npy", "sparse.npy", "manifest.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "grow", "missing"])
def test_damage_is_found(whole, tmp_path, file, how):
    out = shutil.copytree(whole, tmp_path / "store")
    damaged(out / file, how)
    with pytest.raises(StoreError, match=re.escape(file)) as error:
        open_store(out).verify()
    assert "meshrec prepare" in str(error.value)
    if how != "flip":  # found without reading everything
        with pytest.raises(StoreError):
            open_store(out)


@pytest.mark.parametrize(("file", "how"), [("sparse.npy", "flip"), ("manifest.json", "missing")])
def test_damage_is_repaired(whole, tmp_path, file, how):
    out = shutil.copytree(whole, tmp_path / "store")
    damaged(out / file, how)
    assert prepare(synthetic(), out).manifest == open_store(whole).manifest
    open_store(out).verify()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 1),
        ("train", 2999),
        ("extra", 1),
        ("columns", {}),
        ("data_hash", "0" * 64),
        ("train_click_rate", 0.5),
        ("rejected", {"label": 1}),
    ],
)
def test_manifest_of_other_content_is_refused(whole, tmp_path, key, value):
    file = shutil.copytree(whole, tmp_path / "store") / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(file.parent).verify()


def test_missing_store_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match=r"run `meshrec prepare`"):
        open_store(tmp_path / "nothing")


def test_foreign_files_are_never_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match=r"thesis\.txt"):
        prepare(synthetic(), tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    file = tmp_path / "thesis.txt"
    with pytest.raises(StoreError, match="no folder"):
        prepare(synthetic(), file)


def test_changed_text_is_read_again(tmp_path):
    from .criteo_text import dataset, good_lines

    path = tmp_path / "rows.tsv"
    path.write_text("\n".join(good_lines(10)))
    first = prepare(dataset(path), tmp_path / "store")
    path.write_text("\n".join(good_lines(10, seed=1)))
    again = prepare(dataset(path), tmp_path / "store")
    assert again.manifest.data_hash != first.manifest.data_hash
    started = time.time_ns()
    prepare(dataset(path), tmp_path / "store")
    assert (tmp_path / "store" / "manifest.json").stat().st_mtime_ns < started
