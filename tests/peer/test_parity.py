"""meshrec against TorchRec, an independent engine: 1D against `DistributedModelParallel`, 2D against `DMPCollection`."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer_venv import NoPeer, peer_python

PARITY = Path(__file__).parents[1] / "benchmarks" / "parity.py"
Differences = dict[tuple[str, str | None], dict[str, float]]
"""(optimizer, fault) → what `parity.py` prints of it."""
SMALL = {"rows": 300, "dim": 8, "bottom": [16, 8], "top": [32, 1], "batch": 128}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "lr": 50},
    # ε of the size of √v: the steps depend on the gradients' scale and on the moments alike
    "rowwise_adagrad": {"optimizer": "rowwise_adagrad", "lr": 0.15, "eps": 3e-3},
    # with fbgemm both sides share the kernel, here they don't
    "own_rowwise_adagrad": {"optimizer": "rowwise_adagrad", "lr": 0.15, "eps": 3e-3, "kernel": "torch"},
}
"""Large rates: gradients are small, and the losses must depend on what the tables learned."""
FAULTS = {1: ("gradient_scale",), 2: ("gradient_scale",), 4: ("gradient_scale", "no_average")}
REPLICAS = {1: 1, 2: 1, 4: 2}
STEPS = {1: 100, 2: 100, 4: 10}


def python() -> Path:
    try:
        return peer_python()
    except NoPeer as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def one_dimensional(request: pytest.FixtureRequest) -> Differences:
    return differences(request.param)


@pytest.fixture(scope="module")
def two_dimensional() -> Differences:
    return differences(4)


def differences(ranks: int) -> Differences:
    """Of all optimizers, sound and spoilt, in one launch; 2D without assertions, or TorchRec would refuse the CPU."""
    keys = [(name, fault) for name in OPTIMIZERS for fault in (None, *FAULTS[ranks])]
    shape = {"ranks": ranks, "replicas": REPLICAS[ranks], **SMALL}
    cases = [{"workload": {**shape, **OPTIMIZERS[name]}, "steps": STEPS[ranks], "fault": fault} for name, fault in keys]
    return dict(zip(keys, run(cases, optimise=REPLICAS[ranks] > 1), strict=True))


def run(cases: list[dict[str, Any]], optimise: bool) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(json.dumps(cases))
        command = [python(), *["-O"] * optimise, PARITY, file]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_1d_losses_are_those_of_distributed_model_parallel(one_dimensional: Differences, optimizer: str):
    found = one_dimensional[optimizer, None]
    assert found["loss"] < 1e-4
    assert found["tables"] < 1e-4
    assert found["moved"] > 1e-2, "the tables didn't train: the losses say nothing about their update"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_2d_tables_and_losses_are_those_of_dmp_collection(two_dimensional: Differences, optimizer: str):
    found = two_dimensional[optimizer, None]
    assert found["loss"] < 1e-6
    assert found["tables"] < 1e-6
    assert found["moved"] > 1e-2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_1d_a_wrong_gradient_scale_shows(one_dimensional: Differences, optimizer: str):
    assert one_dimensional[optimizer, "gradient_scale"]["loss"] > 5e-4


@pytest.mark.parametrize("fault", FAULTS[4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_2d_a_fault_shows(two_dimensional: Differences, optimizer: str, fault: str):
    found = two_dimensional[optimizer, fault]
    assert found["loss"] > 1e-5
    assert found["tables"] > 1e-2
