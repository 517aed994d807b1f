"""Write requirements.lock and environment.yml from the environment that runs this: `./reproduce lock`.

Only what meshrec needs, directly or not, is written; whatever else lies in the environment is left out.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("cpu", "dev")
ACCELERATOR_WHEELS = ("nvidia-", "triton", "cuda-")
"""Parts of torch's CUDA build. Torch pins them itself, and its CPU build has none."""
HEADER = "# Made by `./reproduce lock` from pyproject.toml and an environment that passed `./reproduce test`. Don't edit.\n"


def direct_requirements(root: Path = ROOT) -> list[Requirement]:
    """What pyproject.toml asks for: the package's own needs, the CPU kernels, the developer's tools, the build backend."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    own = project["project"]
    extras = [line for extra in EXTRAS for line in own["optional-dependencies"][extra]]
    return [Requirement(line) for line in [*project["build-system"]["requires"], *own["dependencies"], *extras]]


def pins(direct: list[Requirement]) -> dict[str, str]:
    """Installed version of every requirement, followed to the end, by canonical name in alphabetical order."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = list(direct)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen or name.startswith(ACCELERATOR_WHEELS):
            continue
        seen.add((name, frozenset(requirement.extras)))
        found[name] = _installed(requirement)
        waiting += _needs(requirement)
    return dict(sorted(found.items()))


def _installed(requirement: Requirement) -> str:
    """Version without its local part: torch 2.13.0+cpu and 2.13.0 are builds of one release."""
    try:
        version = Version(distribution(requirement.name).version)
    except PackageNotFoundError:
        raise SystemExit(f"{requirement} is not installed here: run ./reproduce setup first") from None
    if not requirement.specifier.contains(version, prereleases=True):
        raise SystemExit(f"found {requirement.name} {version}, want {requirement}: run ./reproduce setup first")
    return version.public


def _needs(requirement: Requirement) -> Iterator[Requirement]:
    for line in distribution(requirement.name).requires or []:
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
            yield need


def requirements_lock(pinned: dict[str, str]) -> str:
    """Text of requirements.lock."""
    return HEADER + "".join(f"{name}=={version}\n" for name, version in pinned.items())


def environment_yml(pinned: dict[str, str]) -> str:
    """Text of environment.yml: the same pins, installed by pip into a conda environment."""
    lines = "".join(f"      - {name}=={version}\n" for name, version in pinned.items())
    return (
        f"{HEADER}# conda env create -f environment.yml && conda activate meshrec && pip install --no-deps -e .\n"
        "# CUDA: write fbgemm-gpu in place of fbgemm-gpu-cpu.\n"
        f"name: meshrec\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n{lines}"
    )


def main() -> None:
    """Write both files, or with --check say whether they are what this environment holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is out of step")
    check = parser.parse_args().check
    pinned = pins(direct_requirements())
    for name, text in (("requirements.lock", requirements_lock(pinned)), ("environment.yml", environment_yml(pinned))):
        path = ROOT / name
        if check and path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is out of step with the environment: run ./reproduce lock")
        if not check:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
