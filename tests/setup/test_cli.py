import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshrec.cli import find_experiment, main
from meshrec.experiment import ExperimentError, blocks, load_experiment

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "experiments" / "smoke.yaml"


def meshrec(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "meshrec.cli", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_check_prints_the_triple():
    run = meshrec("check")
    assert run.returncode == 0, run.stderr
    assert "torch 2.13" in run.stdout
    assert "fbgemm 1.8" in run.stdout
    assert "CUDA " in run.stdout


def test_check_refuses_a_wrong_pair_before_anything_is_imported(tmp_path):
    """Real metadata of another fbgemm, found first on the path, as a wrong `pip install` would leave it."""
    info = tmp_path / "fbgemm_gpu_cpu-1.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fbgemm-gpu-cpu\nVersion: 1.9.0\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from meshrec.cli import main\n"
        "status = main(['check'])\n"
        "print('imported' if {'torch', 'fbgemm_gpu'} & set(sys.modules) else 'untouched')\n"
        "sys.exit(status)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert run.stdout == "untouched\n"
    assert "fbgemm-gpu-cpu 1.9.0" in run.stderr
    assert "Traceback" not in run.stderr


def test_cells_lists_every_run_in_order(capsys):
    assert main(["cells", str(SMOKE)]) == 0
    printed = capsys.readouterr().out.splitlines()
    runs = [cell for block in blocks(load_experiment(SMOKE)) for cell in block.cells]
    assert printed[0] == f"smoke: 9 blocks (ranks-seed), {len(runs)} runs"
    assert [line.split()[2] for line in printed[3:]] == [cell.layout for cell in runs]
    assert any(line.split()[:5] == ["4-0", "1", "2d", "2×2", "scaled"] for line in printed)


def test_plan_shows_and_draws_a_plan(capsys, tmp_path):
    assert main(["plan", str(SMOKE), "--layout", "2d", "--ranks", "4", "--picture", str(tmp_path / "plan.svg")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2d.plain.strong at 4 ranks, 2d.scaled.strong at 4 ranks\nplan ")
    assert "26 tables over 2 ranks" in printed
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")


def test_cells_json_is_the_resolved_experiment(capsys):
    assert main(["cells", str(SMOKE), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    expected = blocks(load_experiment(SMOKE))
    assert [block["block"] for block in listed] == [block.name for block in expected]
    assert [cell["settings_hash"] for cell in listed[1]["cells"]] == [cell.settings_hash for cell in expected[1].cells]


def test_cells_starts_fast_because_torch_is_not_imported():
    program = (
        "import sys\nfrom meshrec.cli import main\nmain(['cells', 'smoke'])\n"
        "heavy = {'torch', 'fbgemm_gpu', 'pandas', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'{heavy}' if heavy else 0)"
    )
    start = time.monotonic()
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert time.monotonic() - start < 5  # 0.4 s on an idle machine


def test_an_experiment_is_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_experiment("smoke") == SMOKE
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "smoke.yaml").touch()
    assert find_experiment("smoke") == Path("experiments/smoke.yaml")


def test_an_unknown_name_lists_the_experiments():
    with pytest.raises(ExperimentError, match=r"nosuch: no experiment.*smoke"):
        find_experiment("nosuch")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cells", "nosuch"], "nosuch: no experiment of this name"),
        (["cells", "missing.yaml"], "missing.yaml: can't be read"),
        (
            ["train", "smoke", "--ranks", "3", "--seed", "0", "--store", "s", "--out", "o"],
            "no block with ranks 3; it has [1, 2, 4]",
        ),
        (
            ["train", "smoke", "--ranks", "2", "--seed", "9", "--store", "s", "--out", "o"],
            "no block with seed 9; it has [0, 1, 2]",
        ),
        (["train", "smoke", "--ranks", "1", "--seed", "0", "--store", "no-store", "--out", "o"], "no-store"),
        (["tables", "smoke", "--results", "no-results"], "no-results"),
        (["plan", "smoke", "--layout", "3d"], "no layout 3d; it has ['1d', '2d']"),
        (["plan", "smoke", "--picture", "plan.bmp"], "plan.bmp ends in .bmp, want .png, .pdf or .svg"),
        (["plan", "smoke", "--picture", "plan.png"], "choose it by --layout and --ranks"),
    ],
)
def test_wrong_input_is_one_clear_message_and_status_2(arguments, message, tmp_path):
    run = meshrec(*arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert not any(tmp_path.iterdir())


def test_verbose_may_stand_before_or_after_the_command(tmp_path):
    for arguments in (["-v", "cells", "nosuch"], ["cells", "nosuch", "-v"]):
        run = meshrec(*arguments, cwd=tmp_path)
        assert run.returncode == 2
        assert "Traceback" in run.stderr  # only on request
