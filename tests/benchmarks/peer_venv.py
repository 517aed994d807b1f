"""A virtual environment for TorchRec, on top of the one that meshrec is installed in.

Both sides of a comparison then run on the very same torch and fbgemm files, in the same processes. `python peer_venv.py` makes
it; benchmarks and tests find it.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "peer_requirements.txt"
COMMAND = "python tests/benchmarks/peer_venv.py"
STAMP = "peer_requirements.txt"
"""Copy of the requirements, written last: it says that the environment is whole and what it was made from."""


class NoPeer(RuntimeError):
    """TorchRec's environment isn't there, or isn't the one asked for. The message says which command makes it."""


def folder() -> Path:
    """Where the environment is: $MESHREC_PEER_VENV, or inside the checkout's own, which it builds on and vanishes with."""
    return Path(os.environ.get("MESHREC_PEER_VENV") or HERE.parents[1] / ".venv" / "peer").absolute()


def peer_python() -> Path:
    """The environment's interpreter.

    Raises:
        NoPeer: it isn't there, unfinished, or made from other requirements.
    """
    stamp = folder() / STAMP
    if not stamp.is_file():
        raise NoPeer(f"no TorchRec environment in {folder()}: make it with `{COMMAND}`, or name another in MESHREC_PEER_VENV")
    if stamp.read_text() != _fingerprint():
        raise NoPeer(f"the TorchRec environment in {folder()} was made from other requirements: run `{COMMAND}` again")
    return folder() / "bin" / "python"


def run_in_peer(optimise: bool = False) -> None:
    """Start the running script again with the environment's interpreter, unless that is the one that runs.

    Args:
        optimise: without assertions (`python -O`), which is how TorchRec's `DMPCollection` can be made to run on a CPU.
    """
    right = Path(sys.prefix).resolve() == folder().resolve() and (not optimise or sys.flags.optimize > 0)
    if right:
        return
    try:
        python = str(peer_python())
    except NoPeer as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    os.execv(python, [python, *["-O"] * optimise, *sys.argv])


def make() -> Path:
    """Make the environment anew and check that TorchRec imports in it; returns its folder."""
    where = folder()
    venv.create(where, clear=True, with_pip=True)
    python = where / "bin" / "python"
    _put_beneath(python, _own_packages())
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--requirement",
        REQUIREMENTS,
    ]
    subprocess.run(command, check=True)
    subprocess.run([python, "-c", "import meshrec, torchrec.distributed.model_parallel"], check=True)
    (where / STAMP).write_text(_fingerprint())
    return where


def _own_packages() -> Path:
    """Site-packages of the environment that runs this, with meshrec, torch and fbgemm in it."""
    if Path(sys.prefix).resolve() == folder().resolve():
        sys.exit("peer_venv.py: run it with meshrec's own Python, not with the one that it makes")
    return Path(sysconfig.get_paths()["purelib"])


def _put_beneath(python: Path, packages: Path) -> None:
    """Let an environment find another one's packages, after its own."""
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], check=True, capture_output=True, text=True
    )
    link = Path(found.stdout.strip()) / "meshrec_beneath.pth"
    link.write_text(f"import site; site.addsitedir({str(packages)!r})\n")


def _fingerprint() -> str:
    return REQUIREMENTS.read_text()


if __name__ == "__main__":
    print(f"TorchRec's environment: {make()}")
