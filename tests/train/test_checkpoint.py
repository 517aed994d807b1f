"""Checkpoints on real ranks: resumed to the bit in every mode, loaded into other meshes, refused when they don't fit."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshrec.experiment import Cell
from meshrec.mesh.launch import launch
from meshrec.train.checkpoint import latest
from meshrec.train.checkpoint.files import MANIFEST, begin
from support.checkpoints import AT, STEPS, attempts, predict_from, resume_and_train, train_and_save
from support.experiments import random_batches, small_cell

PLAIN = {"kind": "rowwise_adagrad", "lr": 0.02, "eps": 3e-3}
DENSITY = {"kind": "density_scaled_rowwise_adagrad", "lr": 0.02, "replicas": 2, "eps": 3e-3}
MOMENTUM = {"kind": "momentum_rowwise_adagrad", "lr": 0.02, "beta": 0.8, "eps": 3e-3}
MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1d": ({"sharding": "column-wise", "tables": {3: "replicated", 4: "row-wise"}}, PLAIN),
    "every step": ({"replicas": 2}, DENSITY),
    "K=3": ({"replicas": 2, "sync_every": 3}, PLAIN),
    "K=3, whole, replicated": ({"replicas": 2, "sync_every": 3, "sync_rows": "whole", "tables": {3: "replicated"}}, PLAIN),
    "local moments": ({"replicas": 2, "sync_every": 3, "sync_moments": "local"}, MOMENTUM),
    "lagged, overlapped": ({"replicas": 2, "sync_moments": "lagged", "sync_overlap": True}, PLAIN),
    "gradients": ({"replicas": 2, "sync": "gradients"}, PLAIN),
    "sharded storage": ({"replicas": 2, "sync_rows": "whole", "replica_storage": "sharded"}, PLAIN),
}
TRAINING = {"dense_optimizer": {"kind": "adagrad", "lr": 0.02}, "kernel": "torch"}


def cell_of(mode: str, ranks: int = 2, **changes: Any) -> Cell:
    layout, optimizer = MODES[mode]
    return small_cell(ranks, layout, optimizer, training=TRAINING, **changes)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Any]]:
    folders = [tmp_path_factory.mktemp("checkpoints") / str(index) for index in range(len(MODES))]
    cells = [cell_of(mode) for mode in MODES]
    return folders, launch(train_and_save, 2, cells, random_batches(cells[0], STEPS), folders, timeout=200)


@pytest.fixture(scope="module")
def resumed(saved: tuple[list[Path], list[Any]]) -> list[Any]:
    cells = [cell_of(mode) for mode in MODES]
    return launch(resume_and_train, 2, cells, random_batches(cells[0], STEPS), saved[0], timeout=200)


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(mode: str, saved: Any, resumed: Any):
    index = list(MODES).index(mode)
    for uninterrupted, again in zip(saved[1], resumed, strict=True):
        assert_same(uninterrupted[index], again[index])


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(other[name], value, err_msg=name)
        else:
            assert other[name] == value, name


TARGETS = {
    "one rank": (1, {}),
    "row-wise": (2, {"sharding": "row-wise"}),
    "columns of four": (4, {"replicas": 2, "sharding": "column-wise"}),
    "mixed": (4, {"replicas": 2, "tables": {0: "replicated", 5: "row-wise"}, "sync": "gradients"}),
    "virtual": (2, {"replicas": 2}),
}


def predictions(processes: int, cells: list[Cell], paths: list[Path]) -> list[np.ndarray]:
    batch = random_batches(cell_of("K=3"), 1, seed=9)[0]
    ranks = launch(predict_from, processes, cells, batch, paths, timeout=100)
    return [np.concatenate([rank[index] for rank in ranks]) for index in range(len(cells))]


MOVED = ["K=3", "gradients", "lagged, overlapped"]


@pytest.fixture(scope="module")
def moved(saved: Any) -> dict[tuple[str, str], np.ndarray]:
    """Predictions of checkpoints in other meshes, by mode and target; "itself" is the mesh that it was saved in."""
    cases = [(mode, target) for mode in MOVED for target in (*TARGETS, "itself")]
    found = {}
    for processes in (1, 2, 4):
        here = [case for case in cases if processes_of(case[1]) == processes]
        paths = [latest(saved[0][list(MODES).index(mode)]) for mode, _ in here]
        found |= dict(zip(here, predictions(processes, [target_cell(*case) for case in here], paths), strict=True))
    return found


def processes_of(target: str) -> int:
    return {"itself": 2, "virtual": 1}.get(target) or TARGETS[target][0]


def target_cell(mode: str, target: str) -> Cell:
    if target == "itself":
        return cell_of(mode)
    settings = {**TRAINING, "execution": "virtual" if target == "virtual" else "ranks"}
    return small_cell(TARGETS[target][0], TARGETS[target][1], PLAIN, training=settings)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", MOVED)
def test_a_checkpoint_predicts_the_same_in_any_mesh(target: str, mode: str, moved: Any):
    """K=3 is saved between two averages: what it predicts is what its replicas' mean predicts."""
    np.testing.assert_array_equal(moved[mode, target], moved[mode, "itself"])
    assert np.ptp(moved[mode, target]) > 0.01


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"sync_every": 3}, {**PLAIN, "lr": 0.03}, "data", "optimizer.lr: found 0.02, want 0.03"),
    ({"sync_every": 3}, {**PLAIN, "eps": 1e-3}, "data", "optimizer.eps: found 0.003, want 0.001"),
    ({"sync_every": 4}, PLAIN, "data", "layout.sync_every: found 3, want 4"),
    ({"replicas": 1}, PLAIN, "data", "layout.replicas: found 2, want 1"),
    (
        {"sync_every": 3},
        {**PLAIN, "kind": "moment_scaled_rowwise_adagrad", "moment_scale": 2},
        "data",
        "optimizer.moment_scale: found None, want 2",
    ),
    ({"sync_every": 3}, PLAIN, "other", "data: found data, want other"),
    ({"sync_every": 3, "sharding": "row-wise"}, PLAIN, "data", "layout.sharding: found 'table-wise', want 'row-wise'"),
]


def test_a_checkpoint_of_another_run_is_refused_by_name(saved: Any):
    path = latest(saved[0][list(MODES).index("K=3")])
    cells = [small_cell(2, {"replicas": 2, **layout}, optimizer, training=TRAINING) for layout, optimizer, _, _ in REFUSED]
    told = launch(attempts, 2, cells, [path] * len(cells), [data for _, _, data, _ in REFUSED], timeout=60)
    assert told[0] == told[1]
    for (_, _, _, message), found in zip(REFUSED, told[0], strict=True):
        assert message in found
        assert str(path) in found


DAMAGED = ["__0_0.distcp", "rank-1.npz", ".metadata", "missing"]


@pytest.fixture(scope="module")
def damaged(saved: Any, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What a launch is told about checkpoints of which one file has one changed byte, or is gone."""
    path, copies = latest(saved[0][list(MODES).index("K=3")]), []
    for name in DAMAGED:
        copy = tmp_path_factory.mktemp("damaged") / path.name
        shutil.copytree(path, copy)
        if name == "missing":
            (copy / "__1_0.distcp").unlink()
        else:
            content = bytearray((copy / name).read_bytes())
            content[len(content) // 2] ^= 1
            (copy / name).write_bytes(content)
        copies.append(copy)
    outside = tmp_path_factory.mktemp("outside")
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"]["../outside"] = "0"
    (outside / MANIFEST).write_text(json.dumps(manifest))
    cells = [cell_of("K=3")] * (len(DAMAGED) + 1)
    return launch(attempts, 2, cells, [*copies, outside], ["data"] * len(cells), timeout=60)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_changed_byte_is_noticed(name: str, damaged: Any):
    for told in damaged:
        message = told[DAMAGED.index(name)]
        assert "other bytes than were written" in message
        assert (name if name != "missing" else "__1_0.distcp") in message


def test_a_manifest_names_files_of_its_own_folder_only(damaged: Any):
    assert all("outside the checkpoint" in told[-1] for told in damaged)


def test_a_write_that_was_cut_off_is_no_checkpoint(tmp_path: Path):
    partial = begin(tmp_path, 3)
    (partial / "__0_0.distcp").write_bytes(b"half")
    assert latest(tmp_path) is None
    (tmp_path / "step-5").mkdir()  # no manifest: its rename is the last thing that a write does
    assert latest(tmp_path) is None
    assert begin(tmp_path, 4).exists()
    assert not partial.exists()


def test_only_the_last_checkpoint_stays(saved: Any):
    for folder in saved[0]:
        assert [path.name for path in folder.iterdir()] == [f"step-{AT}"]
