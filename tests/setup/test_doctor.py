"""The preflight: every number against one worked out apart, every check made to fail for real where that can be done."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from meshrec.cli import main
from meshrec.data.fetch.sources import load_sources
from meshrec.data.prepare import prepare
from meshrec.doctor import sizes
from meshrec.doctor.finding import DoctorError, Finding, findings_text
from meshrec.doctor.fits import Need, Places, data_finding, disk_findings, step_finding, writable_findings
from meshrec.doctor.limits import cores, memory_bytes
from meshrec.doctor.machine import (
    core_finding,
    memory_finding,
    open_file_finding,
    rendezvous_finding,
    shared_memory_finding,
    slurm_finding,
    submits,
)
from meshrec.doctor.report import refuse_failed
from meshrec.embeddings.plan_loads import plan_loads
from meshrec.experiment.cells import Block
from meshrec.experiment.schema import CriteoDataset
from meshrec.mesh.launch import RankError
from meshrec.train.setup import make_cell_plan, optimizer_state_bytes
from support.experiments import OPTIMIZERS, small_cell, small_experiment

ROOT = Path(__file__).resolve().parents[2]
ROWS = sum(5 + 3 * table for table in range(26))
SOURCES = list(load_sources().values())


def doctor(*arguments, limit=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "meshrec.cli", "doctor", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def line(run, what):
    """Found, needed and verdict of one line, and the advice below it."""
    lines = run.stdout.splitlines()
    (place,) = [place for place, text in enumerate(lines) if text.startswith(what)]
    advice = lines[place + 1].strip() if lines[place + 1 :] and lines[place + 1].startswith("    →") else ""
    return [part for part in lines[place].split("  ") if part.strip()][1:], advice


# --- the command -------------------------------------------------------------------------------------------------------


def test_an_experiment_that_fits(tmp_path):
    run = doctor("smoke", "--data", tmp_path / "data", "--results", tmp_path / "results")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[0].split() == ["what", "found", "needed", "verdict"]
    assert [part.strip() for part in line(run, "two ranks meet")[0]] == ["yes", "yes", "ok"]
    store = (102_400 + 32_768) * 160
    (_, needed, verdict), _ = line(run, f"disk of {tmp_path}")
    assert needed.endswith(f"store {store / 1e6:.1f} MB")
    assert verdict.strip() == "ok"
    assert not any(tmp_path.iterdir())  # nothing is made


def test_an_experiment_that_does_not_fit_ends_in_an_error(tmp_path):
    large = (ROOT / "experiments" / "smoke.yaml").read_text().replace("name: smoke", "name: large")
    large = large.replace("table_rows: 20000", "table_rows: 2000000000")
    (tmp_path / "large.yaml").write_text(large.replace("train_samples: 102400", "train_samples: 102400000000000"))
    run = doctor(tmp_path / "large.yaml", limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (70, 70)))
    assert run.returncode == 2
    assert line(run, "memory, block of 4 ranks")[0][1].strip().endswith("TB")
    assert line(run, "open files") == ([*line(run, "open files")[0]], "→ raise the limit: ulimit -n 96")
    for failed in ("open files", "memory, block of 1 rank;", "memory, block of 4 ranks", "disk of"):
        assert failed in run.stderr
    assert "Traceback" not in run.stderr


def test_ranks_that_cannot_meet_are_found_out():
    run = doctor(GLOO_SOCKET_IFNAME="nosuch0")
    assert run.returncode == 2
    assert line(run, "two ranks meet")[0][0].strip() == "no"
    assert "GLOO_SOCKET_IFNAME" in line(run, "two ranks meet")[1]
    assert "checks fail: two ranks meet" in run.stderr


def test_an_unknown_experiment(capsys):
    assert main(["doctor", "nosuch"]) == 2
    assert "no experiment of this name" in capsys.readouterr().err


# --- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        (OPTIMIZERS["sgd"], 0),
        (OPTIMIZERS["plain"], 1),
        ({"kind": "momentum_rowwise_adagrad", "lr": 0.1, "beta": 0.9}, 1 + 8),
        ({"kind": "density_scaled_rowwise_adagrad", "lr": 0.1, "replicas": 2}, 1 + 4),
    ],
)
def test_table_bytes_are_those_of_the_plan(optimizer, state):
    """Rows of 8 numbers and their state, 4 bytes each; the planner adds the same up shard by shard."""
    cell = small_cell(2, {"replicas": 1}, optimizer, training={"kernel": "torch"})
    assert sizes.table_bytes(cell) == 4 * ROWS * (8 + state)
    assert plan_loads(make_cell_plan(cell), None, optimizer_state_bytes(cell)).memory.sum() == 4 * ROWS * (8 + state)


def test_state_of_tables_of_different_widths():
    dims = [4] * 13 + [8] * 13
    model = {"kind": "dcnv2", "embedding_dim": dims, "bottom_mlp": [16, 8], "top_mlp": [16, 1]}
    momentum = {"kind": "momentum_rowwise_adagrad", "lr": 0.1, "beta": 0.9}
    cell = small_cell(1, {}, momentum, model=model, training={"kernel": "torch"})
    assert sizes.table_bytes(cell) == sum(4 * (5 + 3 * table) * (2 * dims[table] + 1) for table in range(26))


def test_replicas_hold_tables_each_unless_they_share_storage():
    held = {
        name: sizes.held_bytes(small_cell(2, layout, OPTIMIZERS["plain"]))
        for name, layout in {
            "1d": {},
            "2d": {"replicas": 2},
            "shared": {"replicas": 2, "replica_storage": "sharded", "sync_rows": "whole"},
        }.items()
    }
    assert held == {"1d": 4 * ROWS * 9, "2d": 8 * ROWS * 9, "shared": 4 * ROWS * 9}


def test_memory_of_a_block_is_its_processes_and_its_largest_cell():
    layouts = {"1d": {}, "2d": {"replicas": 2}}
    experiment = small_experiment(2, layouts, {"plain": OPTIMIZERS["plain"]})
    assert sizes.block_memory(Block(experiment, 2, 0)) == 2 * sizes.PROCESS_BYTES + 2 * 8 * ROWS * 9
    assert sizes.device_memory(Block(experiment, 2, 0)) == 8 * ROWS * 9
    virtual = small_experiment(2, layouts, {"plain": OPTIMIZERS["plain"]}, training={"execution": "virtual"})
    assert sizes.block_memory(Block(virtual, 2, 0)) == sizes.PROCESS_BYTES + 2 * 8 * ROWS * 9
    assert sizes.most_processes(virtual) == 1


def test_checkpoints_at_their_most():
    layouts = {"1d": {}, "k4": {"replicas": 2, "sync_every": 4}}
    once = 4 * ROWS * 9

    def most(**training):
        training["dense_optimizer"] = {"kind": "sgd", "lr": 0.1}
        return sizes.checkpoint_bytes(small_experiment([2, 4], layouts, {"plain": OPTIMIZERS["plain"]}, training=training))

    assert most() == 0
    dense = 4 * (13 * 16 + 16 + 16 * 8 + 8 + (8 + 27 * 26 // 2) * 16 + 16 + 16 + 1)  # plain SGD keeps nothing beside it
    one, twins = (k * once + dense + sizes.CHECKPOINT_HEAD_BYTES for k in (1, 2))
    assert most(checkpoint_every=8) == 2 * one
    assert most(checkpoint_every=10) == 2 * twins  # twins that differ between averages are saved each
    assert most(checkpoint_every=10, keep_checkpoints=True) == twins + 2 * (one + twins)


def test_store_bytes_are_those_of_a_real_store(tmp_path):
    dataset = small_experiment(1, {"1d": {}}, {"sgd": OPTIMIZERS["sgd"]}).dataset
    prepare(dataset, tmp_path / "store", 1)
    written = sum(path.stat().st_size for path in (tmp_path / "store").glob("*.npy"))
    assert sizes.rows(dataset, None) == 4096 + 512
    assert sizes.store_bytes(dataset, 4096 + 512) == written - 3 * 128  # their headers


def criteo(path, **settings):
    return CriteoDataset.model_validate({"kind": "criteo", "variant": "kaggle", "path": path, "table_rows": 100, **settings})


def test_rows_of_files_are_never_guessed_too_few(tmp_path):
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_bytes(b"x" * 243 * 1000)
    files = [str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")]
    assert 2000 <= sizes.rows(criteo(files), None) <= 2600
    assert sizes.training_rows(criteo(files), 7000) == 6000


@pytest.mark.skipif("MESHREC_REAL_DATA" not in os.environ, reason="MESHREC_REAL_DATA is not set")
def test_rows_of_real_files_are_never_guessed_too_few():
    folder = Path(os.environ["MESHREC_REAL_DATA"]) / "criteo"
    assert 137_139 <= sizes.rows(criteo(str(folder / "kaggle_train_137139.tsv.gz")), None) < 1.3 * 137_139
    assert 10_000 <= sizes.rows(criteo(str(folder / "terabyte_day0_head_10000.tsv.gz")), None) < 1.3 * 10_000


def test_without_files_the_table_of_data_sets_is_asked(monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    kaggle = criteo("$NOWHERE/train.txt")
    source = sizes.source_of(kaggle, SOURCES)
    assert source.name == "criteo-kaggle"
    assert sizes.rows(kaggle, source) == 45_840_617
    assert sizes.rows(kaggle, None) is None
    assert sizes.raw_bytes(source) == 4_576_820_670 + 11_150_000_000
    days = criteo([f"/nowhere/day_{day}.gz" for day in range(12)], variant="terabyte")
    assert sizes.rows(days, sizes.source_of(days, SOURCES)) == 495_000_000 // 2
    vocabulary = criteo("/x", categories={"kind": "vocabulary", "min_count": 2})
    assert sizes.store_bytes(vocabulary, 10) == 10 * (160 + 112)


# --- findings ----------------------------------------------------------------------------------------------------------


def test_missing_data_say_how_they_can_be_had():
    experiment = small_experiment(1, {"1d": {}}, {"sgd": OPTIMIZERS["sgd"]}, dataset=criteo("/nowhere/x").model_dump())
    source = sizes.source_of(experiment.dataset, SOURCES)
    found = data_finding(experiment, source, None)
    assert (found.verdict, found.found) == ("fails", "not here")
    assert "/nowhere/x is no file" in found.advice
    assert "`meshrec fetch criteo-kaggle`" in found.advice
    assert data_finding(experiment, source, Path("store")).verdict == "ok"


def test_too_few_rows_for_one_step():
    experiment = small_experiment([1, 2, 3], {"1d": {}}, {"sgd": OPTIMIZERS["sgd"]}, scaling={"weak": {"rank_batch": 10}})
    assert step_finding(experiment, 60).verdict == "ok"
    assert step_finding(experiment, 59) == Finding(
        "training rows", "at most 59", "60, the batches' multiple", "fails", "take smaller global batches or more rows"
    )


def test_what_lies_on_one_disk_must_fit_together(tmp_path):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    part = int(0.6 * free)
    needs = [Need("store", tmp_path / "not" / "yet", part), Need("checkpoints", tmp_path, part)]
    assert [finding.verdict for finding in disk_findings(needs[:1])] == ["ok"]
    (both,) = disk_findings(needs)
    assert both.verdict == "fails"
    assert "store" in both.needed
    assert "checkpoints" in both.needed


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no second file system at /dev/shm")
def test_two_disks_are_two_findings(tmp_path):
    found = list(disk_findings([Need("store", tmp_path, 1), Need("raw", Path("/dev/shm"), 2)]))
    assert len(found) == 1 + (tmp_path.stat().st_dev != Path("/dev/shm").stat().st_dev)


def test_folders_that_cannot_be_written_to():
    found = list(writable_findings(Places(Path("/proc/x"), Path("/proc/1"))))
    assert all(finding.verdict == ("ok" if os.access("/proc", os.W_OK) else "fails") for finding in found[:1])


def test_limits_of_control_groups(tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/job/step\n")
    step = tmp_path / "groups" / "job" / "step"
    step.mkdir(parents=True)
    (step / "memory.max").write_text("max\n")
    (step.parent / "memory.max").write_text("1000000\n")
    (step / "cpu.max").write_text("max 100000\n")
    (step.parent / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("5")  # above the groups: not one of them
    assert memory_bytes(tmp_path / "groups", own) == 1_000_000
    assert cores(tmp_path / "groups", own) == 1
    assert memory_bytes(tmp_path / "none", tmp_path / "none") == memory_bytes(tmp_path / "none", own) > 10**8
    assert cores(tmp_path / "none", own) == len(os.sched_getaffinity(0))


def test_single_checks():
    assert core_finding(4, 2).verdict == "note"
    assert core_finding(4, 4).verdict == "ok"
    assert open_file_finding(8, 128).verdict == "ok"
    assert open_file_finding(8, 127).verdict == "fails"
    assert open_file_finding(8, resource.RLIM_INFINITY).found == "unlimited"
    assert shared_memory_finding(1, Path("/proc/none")).verdict == "note"
    assert slurm_finding(lambda name: None).verdict == "note"
    assert slurm_finding(lambda name: f"/usr/bin/{name}" if name != "sbatch" else None).found == "sinfo, srun"
    assert slurm_finding(lambda name: f"/usr/bin/{name}").verdict == "ok"


def test_a_small_machine_stops_nothing_that_slurm_runs_elsewhere():
    assert memory_finding("memory", 10**15).verdict == "fails"
    assert memory_finding("memory", 10**15, submitted=True).verdict == "note"
    assert memory_finding("memory", 1, submitted=True).verdict == "ok"
    assert submits(lambda name: f"/usr/bin/{name}" if name == "sbatch" else None)
    assert not submits(lambda name: None)


def test_a_rank_that_fails_is_quoted():
    def meet():
        raise RankError(0, "RuntimeError: no route", "trace")

    assert "no route; is loopback up" in rendezvous_finding(meet).advice


def test_text_and_refusal():
    findings = [Finding("a", "1", "2", "ok"), Finding("bb", "33", "2", "note", "do")]
    assert (
        findings_text(findings) == "what  found  needed  verdict\na     1      2       ok\nbb    33     2       note\n    → do"
    )
    refuse_failed(findings)
    with pytest.raises(DoctorError, match=r"^1 of 3 checks fail: c$"):
        refuse_failed([*findings, Finding("c", "", "", "fails")])
