"""The `reproduce` script before its environment exists. What it does afterwards is what tests/pipeline runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the script reads, in a folder with a space in its name, without an environment."""
    copy = tmp_path / "a checkout"
    copy.mkdir()
    for name in ("reproduce", "requirements.lock", "pyproject.toml"):
        shutil.copy2(ROOT / name, copy / name)
    shutil.copytree(ROOT / "experiments", copy / "experiments")
    return copy


def reproduce(checkout, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MESHREC_DEVICE", "PYTHONPATH")}
    return subprocess.run(
        [checkout / "reproduce", *arguments],
        cwd="/",
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_needs_nothing(checkout):
    run = reproduce(checkout, "--help")
    assert run.returncode == 0
    assert "./reproduce [EXPERIMENT" in run.stdout
    assert not (checkout / ".venv").exists()


def test_an_unknown_experiment_lists_the_known_ones_before_any_work(checkout):
    run = reproduce(checkout, "nosuch")
    assert run.returncode == 1
    assert "experiments/nosuch.yaml does not exist" in run.stderr
    assert "smoke" in run.stderr
    assert "Layout × optimizer on synthetic data" in run.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_that_is_too_old_or_no_python_is_refused(checkout):
    run = reproduce(checkout, "setup", PYTHON=shutil.which("false") or "/bin/false")
    assert run.returncode == 1
    assert "is no Python 3.11 or newer" in run.stderr
    assert not (checkout / ".venv").exists()


def test_an_unknown_device_is_refused(checkout):
    run = reproduce(checkout, "setup", MESHREC_DEVICE="abacus")
    assert run.returncode == 1
    assert "MESHREC_DEVICE=abacus: want cpu or cuda" in run.stderr


@pytest.mark.timeout(200)
def test_a_half_made_environment_is_never_taken_for_a_whole_one(checkout):
    (checkout / "requirements.lock").write_text("./there_is_no_such_wheel-1.0-py3-none-any.whl\n")
    for _ in range(2):  # the second call finds the environment of the first and tries again
        run = reproduce(checkout, "setup", PYTHON=sys.executable)
        assert run.returncode != 0
        assert "Installing pinned packages" in run.stdout
        assert "there_is_no_such_wheel" in run.stderr
        assert (checkout / ".venv" / "bin" / "python").exists()
        assert not (checkout / ".venv" / "meshrec.stamp").exists()
