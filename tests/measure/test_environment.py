"""What a record says of its machine and its code is what is there."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshrec.measure import environment as module
from meshrec.measure.environment import environment


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own with the module under `code`, a file beside it, and one commit."""
    (tmp_path / "code").mkdir()
    shutil.copy(module.__file__, tmp_path / "code" / "environment.py")
    (tmp_path / "README.md").write_text("one\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def commit_said_in(checkout: Path) -> Any:
    spec = importlib.util.spec_from_file_location("copied_environment", checkout / "code" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    return copied.environment()["commit"]


def test_the_commit_is_that_of_this_checkout():
    try:
        head = git(Path(__file__).parent, "rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout")
    assert environment()["commit"] in (head, head + "+")


def test_a_clean_checkout_is_its_commit(checkout: Path):
    head = git(checkout, "rev-parse", "HEAD")
    assert commit_said_in(checkout) == head[:12]


def test_a_change_of_the_code_is_marked_whether_staged_or_not(checkout: Path):
    head = git(checkout, "rev-parse", "--short=12", "HEAD")
    with (checkout / "code" / "environment.py").open("a") as file:
        file.write("# changed\n")
    assert commit_said_in(checkout) == head + "+"
    git(checkout, "add", ".")
    assert commit_said_in(checkout) == head + "+"


def test_changes_outside_the_code_and_new_files_are_not(checkout: Path):
    (checkout / "README.md").write_text("two\n")
    (checkout / "code" / "notes.txt").write_text("new\n")
    assert commit_said_in(checkout) == git(checkout, "rev-parse", "--short=12", "HEAD")


def test_without_a_repository_there_is_no_commit(checkout: Path):
    shutil.rmtree(checkout / ".git")
    assert commit_said_in(checkout) is None


def test_versions_are_those_installed():
    found = environment()
    assert found["python"] == platform.python_version()
    assert found["packages"].keys() <= {"meshrec", "torch", "fbgemm-gpu-cpu", "fbgemm-gpu", "numpy"}
    assert found["packages"] == {name: version(name) for name in found["packages"]}
    assert {"meshrec", "torch", "numpy"} <= found["packages"].keys()
    for name in ("fbgemm-gpu-cpu", "fbgemm-gpu"):
        assert (name in found["packages"]) == is_installed(name)


def is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def test_hardware_is_that_of_the_machine():
    found = environment()
    assert found["memory_bytes"] == psutil.virtual_memory().total
    assert found["system"] == f"{os.uname().sysname} {os.uname().machine}"
    assert found["cpu"]
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.*\S)\s*$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    assert not models or found["cpu"] in models


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores can't be taken away here")
def test_cores_are_those_that_the_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert environment()["cores"] == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert environment()["cores"] == len(allowed)


def test_nothing_says_whose_machine_it_was():
    assert environment().keys() == {"python", "packages", "commit", "system", "cpu", "cores", "memory_bytes"}
