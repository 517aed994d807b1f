"""`./reproduce EXPERIMENT` in a checkout whose environment is made already: the one that runs these tests, by links."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.checkout import ROOT, Checkout

BLOCK = "results/tiny/blocks/1-0/block.json"


def install(checkout):
    """What `./reproduce setup` leaves behind, stamp included."""
    for name in ("reproduce", "requirements.lock", "pyproject.toml"):
        shutil.copy2(ROOT / name, checkout.folder / name)
    (checkout.folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name != "meshrec.stamp":
            (checkout.folder / ".venv" / entry.name).symlink_to(entry)
    pinned = b"".join((checkout.folder / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
    checksum = subprocess.run(["cksum"], input=pinned, capture_output=True, check=True).stdout.decode()
    (checkout.folder / ".venv" / "meshrec.stamp").write_text(f"{checkout.folder.resolve()}\ncpu\n{checksum}")
    return checkout


def start(checkout, *arguments):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MESHREC_DEVICE", "PYTHONPATH")}
    return subprocess.Popen(
        [checkout.folder / "reproduce", *arguments],
        cwd="/",
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def reproduce(checkout, *arguments):
    process = start(checkout, *arguments)
    output, _ = process.communicate(timeout=280)
    return process.returncode, output


def test_with_nothing_to_do_it_says_in_seconds_where_the_report_is(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "a copy", symlinks=True)
    copy = install(Checkout(tmp_path / "a copy"))
    began = time.monotonic()
    status, output = reproduce(copy, "tiny")
    assert status == 0, output
    assert "Installing" not in output
    assert "torch 2.13" in output
    assert "Nothing to be done" in output
    assert output.endswith(f"Report: {copy.folder}/results/tiny/report.html\n")
    assert time.monotonic() - began < 30  # 6 s on an idle machine


def test_the_lock_of_a_killed_run_is_lifted_and_that_of_a_live_one_is_not(checkout):
    install(checkout)
    locks = checkout.folder / ".snakemake" / "locks"
    process = start(checkout, "tiny", BLOCK)
    try:
        deadline = time.monotonic() + 60
        while not (locks.is_dir() and any(locks.iterdir())):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        status, output = reproduce(checkout, "tiny", BLOCK)
        assert status == 1
        assert f"another ./reproduce (process {process.pid}) works here" in output
        status, output = reproduce(checkout, "tiny", "-n")  # looking is allowed
        assert status == 0, output
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    status, output = reproduce(checkout, "tiny", BLOCK)
    assert status == 0, output
    assert (checkout.folder / BLOCK).exists()
