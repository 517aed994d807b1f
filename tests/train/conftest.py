"""One small experiment, prepared once and trained at one, two and four ranks."""

from pathlib import Path

import pytest

from meshrec.data.prepare import prepare
from meshrec.experiment import Block, Experiment
from meshrec.experiment.record import RunRecord, read_record
from meshrec.train.block import train_block
from support.experiments import small_experiment

LAYOUTS = {
    "1d": {"replicas": 1},
    "1d-rows": {"sharding": "row-wise"},
    "2d": {"replicas": 2, "ranks": [2, 4]},
    "2d-rows": {"replicas": 2, "sharding": "row-wise", "rank_order": "shards-adjacent", "sync_every": 3, "ranks": [4]},
    "2d-mixed": {"replicas": 2, "tables": {1: "replicated", 24: "replicated", 25: "row-wise"}, "sync_every": 3, "ranks": [4]},
    "2d-stored": {"replicas": 2, "sync_rows": "whole", "replica_storage": "sharded", "ranks": [4]},
    "exact": {"replicas": 2, "sync": "gradients", "ranks": [4]},
    "planned": {"sharding": "planned", "ranks": [4]},
}
OPTIMIZERS = {
    "plain": {"kind": "rowwise_adagrad", "lr": 0.05},
    "scaled": {"kind": "moment_scaled_rowwise_adagrad", "lr": 0.05, "moment_scale": 2, "layouts": ["1d", "2d"]},
    "inside": {"kind": "rowwise_adagrad", "lr": 0.05, "eps": 1e-5, "eps_placement": "inside", "layouts": ["2d-stored"]},
}
RANKS = [1, 2, 4]


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    return small_experiment(RANKS, LAYOUTS, OPTIMIZERS, scaling={"strong": {"global_batch": 128}})


@pytest.fixture(scope="session")
def store(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "store"
    prepare(experiment.dataset, folder)
    return folder


@pytest.fixture(scope="session")
def results(experiment: Experiment, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for ranks in RANKS:
        assert train_block(experiment, ranks, 0, store, folder / f"{ranks}-0") == 0
    return folder


@pytest.fixture(scope="session")
def records(experiment: Experiment, results: Path) -> dict[tuple[int, str], RunRecord]:
    return {
        (ranks, cell.name): read_record(results / f"{ranks}-0" / f"{cell.name}.json")
        for ranks in RANKS
        for cell in Block(experiment, ranks, 0).cells
    }
