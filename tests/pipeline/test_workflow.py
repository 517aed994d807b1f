"""What Snakemake says about the workflow without running it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CRITEO = "dataset: {kind: criteo, variant: kaggle, path: $MESHREC_REAL_DATA/criteo/train.tsv, table_rows: 100}\n"


def jobs_of(output):
    """Job counts of a dry run's table."""
    table = output.partition("Job stats:")[2].partition("\n\n")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, flags=re.MULTILINE)}


def test_lint_is_clean(checkout):
    status, output = checkout.snakemake("--lint")
    assert status == 0, output
    assert "good condition" in output


def test_the_rules_are_formatted():
    command = [str(Path(sys.executable).parent / "snakefmt"), "--check", "Snakefile", "code/pipeline"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr


def test_the_literal_slurm_command_resolves_the_whole_dag(checkout):
    status, output = checkout.snakemake("--profile", "slurm", "-n")
    assert status == 0, output
    assert jobs_of(output) == {
        **dict.fromkeys(("prepare", "tables", "contrasts", "figures", "report", "all"), 1),
        "train": 4,  # one job a block: two rank counts by two seeds
        "total": 10,
    }


def test_a_block_asks_for_its_ranks_and_on_cuda_for_one_device_each(checkout):
    _, cpu = checkout.snakemake("--profile", "slurm", "-n")
    assert "tiny: block of 1 ranks, seed 0 (asks for 0 GPUs, 1500 MB)" in cpu
    assert "tiny: block of 2 ranks, seed 1 (asks for 0 GPUs, 3000 MB)" in cpu
    _, cuda = checkout.snakemake("--profile", "slurm", "-n", "--config", "device=cuda")
    assert "tiny: block of 1 ranks, seed 0 (asks for 1 GPUs, 1500 MB)" in cuda
    assert "tiny: block of 2 ranks, seed 1 (asks for 2 GPUs, 3000 MB)" in cuda


def test_a_broken_experiment_gives_its_own_message(checkout):
    path = checkout.folder / "experiments" / "tiny.yaml"
    path.write_text(path.read_text().replace("seeds:", "sedes:"))
    status, output = checkout.snakemake("-n")
    assert status == 1
    assert "experiments/tiny.yaml:7: sedes: unknown key" in output
    assert "Traceback" not in output


def test_an_unknown_experiment_is_refused_with_the_known_ones(checkout):
    status, output = checkout.snakemake("-n", "--config", "experiments=[tony]")
    assert status == 1
    assert "experiments/tony.yaml doesn't exist; there are tiny" in output
    assert "Traceback" not in output


def test_an_experiment_without_its_data_is_left_out_by_default_and_refused_when_asked_for(checkout):
    lines = (checkout.folder / "experiments" / "tiny.yaml").read_text().splitlines(keepends=True)
    real = "".join(CRITEO if line.startswith("dataset:") else line for line in lines).replace("name: tiny", "name: real")
    checkout.experiment("real", real)
    status, output = checkout.snakemake("-n")
    assert status == 0, output
    assert "experiment real is left out: " in output
    assert "MESHREC_REAL_DATA" in output
    assert jobs_of(output)["report"] == 1
    status, output = checkout.snakemake("-n", "--config", "experiments=[real]")
    assert status == 1
    assert "experiment real can't run here: " in output


def test_real_data_is_an_input_of_prepare(checkout, tmp_path):
    lines = (checkout.folder / "experiments" / "tiny.yaml").read_text().splitlines(keepends=True)
    checkout.experiment("tiny", "".join(CRITEO if line.startswith("dataset:") else line for line in lines))
    (tmp_path / "criteo").mkdir()
    text = tmp_path / "criteo" / "train.tsv"
    text.touch()
    status, output = checkout.snakemake("-n", MESHREC_REAL_DATA=str(tmp_path))
    assert (status, jobs_of(output)["prepare"]) == (0, 1)
    text.unlink()
    status, output = checkout.snakemake("-n", "results/tiny/report.html", MESHREC_REAL_DATA=str(tmp_path))
    assert status == 1
    assert "Missing input files for rule prepare" in output
    assert str(text) in output


def test_experiments_with_the_same_data_share_one_store(checkout):
    tiny = (checkout.folder / "experiments" / "tiny.yaml").read_text()
    checkout.experiment("other", tiny.replace("name: tiny", "name: other").replace("lr: 0.05", "lr: 0.01"))
    status, output = checkout.snakemake("-n")
    assert status == 0, output
    assert (jobs_of(output)["prepare"], jobs_of(output)["report"]) == (1, 2)
