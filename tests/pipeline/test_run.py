"""Real runs: from nothing to the report, nothing twice, and on from where a kill left off."""

import json
import os
import shutil
import signal
import time

import psutil
import pytest

from support.checkout import TINY, Checkout

pytestmark = pytest.mark.timeout(600)


def records_of(checkout):
    """Time of last change of each cell's record."""
    paths = (checkout.folder / "results").glob("*/blocks/*/*.json")
    return {str(path.relative_to(checkout.folder)): path.stat().st_mtime_ns for path in paths if path.name != "block.json"}


@pytest.fixture
def copy(finished, tmp_path):
    """The finished experiment, to be changed."""
    shutil.copytree(finished.folder, tmp_path / "a copy", symlinks=True)
    return Checkout(tmp_path / "a copy")


def test_from_nothing_to_the_report(finished):
    results = finished.folder / "results" / "tiny"
    report = (results / "report.html").read_text()
    assert "A tiny experiment" in report
    assert len(records_of(finished)) == 2 * (2 + 4)
    for table in ("runs", "phases", "bytes", "memory"):
        assert (results / f"{table}.parquet").stat().st_size > 0
        assert len((results / f"{table}.csv").read_text().splitlines()) > 12
    assert "interaction" in (results / "contrasts.csv").read_text()
    drawn = sorted(path.name for path in (results / "figures").iterdir() if not path.name.startswith("."))
    assert {path.rpartition(".")[2] for path in drawn} >= {"pdf", "png"}
    paper = finished.folder / "paper_figures" / "tiny"
    assert sorted(path.name for path in paper.iterdir() if not path.name.startswith(".")) == drawn


def test_a_second_run_does_nothing(copy):
    before = records_of(copy)
    start = time.monotonic()
    output = copy.run()
    assert "Nothing to be done" in output
    assert time.monotonic() - start < 20  # 3 s on an idle machine
    assert records_of(copy) == before


def test_a_lost_cell_is_the_only_one_that_is_run_again(copy):
    before = records_of(copy)
    block = copy.folder / "results" / "tiny" / "blocks" / "2-1"
    lost = block / "2d.plain.strong.json"
    lost.unlink()
    (block / "block.json").unlink()
    output = copy.run()
    assert "tiny: block of 2 ranks, seed 1" in output
    assert "tiny: block of 2 ranks, seed 0" not in output
    changed = {path for path, when in records_of(copy).items() if before[path] != when}
    assert changed == {str(lost.relative_to(copy.folder))}


def test_a_changed_setting_reruns_the_cells_that_depend_on_it_and_no_other(copy):
    before = records_of(copy)
    text = TINY.replace("lr: 0.05, moment_scale: 2", "lr: 0.05, moment_scale: 1.5").replace("A tiny", "A changed")
    copy.experiment("tiny", text)
    copy.run()
    changed = {path for path, when in records_of(copy).items() if before[path] != when}
    assert changed == {path for path in before if ".scaled." in path}
    assert "A changed experiment" in (copy.folder / "results" / "tiny" / "report.html").read_text()


# --- killed in the middle of a block -----------------------------------------------------------------------------------

LONGER = (
    TINY.replace("name: tiny", "name: longer")
    .replace("train_samples: 4096", "train_samples: 65536")
    .replace("ranks: [1, 2]", "ranks: [2]")
    .replace("seeds: [0, 1]", "seeds: [0]")
)
BLOCK = "results/longer/blocks/2-0/block.json"


def wait_for(condition, seconds, process):
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"waited in vain; it printed: {process.communicate()[0]}")
        time.sleep(0.005)


def processes_in(folder):
    """Processes at work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_a_killed_run_goes_on_at_the_cell(checkout):
    (checkout.folder / "experiments" / "tiny.yaml").unlink()
    checkout.experiment("longer", LONGER)
    process = checkout.start(BLOCK, "--cores", "2", "--resources", "exclusive=1")
    wait_for(lambda: records_of(checkout), 120, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = records_of(checkout)
    assert 1 <= len(before) < 4, "the block was over before it was killed; make the runs longer"
    assert not (checkout.folder / BLOCK).exists()
    _, alive = psutil.wait_procs(processes_in(checkout.folder), timeout=60)
    assert not alive, "ranks outlive the run that started them"

    status, output = checkout.snakemake("--unlock")
    assert status == 0, output
    checkout.run(BLOCK)
    after = records_of(checkout)
    assert len(after) == 4
    assert {path: after[path] for path in before} == before
    block = json.loads((checkout.folder / BLOCK).read_text())
    assert set(block["status"].values()) == {"ok"}
