"""pyproject.toml, requirements.lock and environment.yml say the same, and this environment is what they say."""

import runpy
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
EITHER_FBGEMM = ("fbgemm-gpu", "fbgemm-gpu-cpu")


@pytest.fixture(scope="module")
def lock():
    """The lock maker's own names."""
    return runpy.run_path(str(ROOT / "code" / "lock.py"))


@pytest.fixture(scope="module")
def locked():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_every_direct_requirement_is_pinned_in_pyproject_and_the_lock_holds_that_version(lock, locked):
    direct = lock["direct_requirements"]()
    assert len(direct) > 20
    for requirement in direct:
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement
    loose = [item.name for item in direct if not str(item.specifier).startswith("==")]
    assert loose == ["setuptools"]  # the build backend alone may be any new enough one; the lock pins it too


def test_environment_yml_pins_exactly_what_the_lock_pins(locked):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == "meshrec"
    python, pip, pinned = environment["dependencies"]
    assert (python, pip) == ("python=3.11", "pip")
    assert dict(line.split("==") for line in pinned["pip"]) == locked


def test_one_fbgemm_is_locked_and_torch_has_no_build_tag(locked):
    assert [name for name in EITHER_FBGEMM if name in locked] == ["fbgemm-gpu-cpu"]
    assert locked["torch"] == "2.13.0"


def test_the_lock_is_complete_and_the_environment_holds_it(lock, locked):
    """Follows every requirement in this environment: none is missing from the lock, and none is of another version."""
    fbgemm = [item for item in lock["direct_requirements"]() if item.name not in EITHER_FBGEMM]
    needed = lock["pins"](fbgemm)
    missing = {name: found for name, found in needed.items() if locked.get(name) != found}
    assert not missing
    assert set(locked) - set(needed) <= set(EITHER_FBGEMM)


def test_a_requirement_of_another_version_stops_the_lock(lock):
    with pytest.raises(SystemExit, match=r"found numpy .*, want numpy==1\.0"):
        lock["pins"]([Requirement("numpy==1.0")])


def test_a_requirement_that_is_not_installed_stops_the_lock(lock):
    with pytest.raises(SystemExit, match="no-such-distribution is not installed here"):
        lock["pins"]([Requirement("no-such-distribution")])


def test_the_build_tag_is_not_part_of_a_pin(lock):
    assert lock["pins"]([Requirement("torch")])["torch"] == Version(version("torch")).public
