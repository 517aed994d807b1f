"""The launcher: results come back by rank, and whatever goes wrong, it ends in bounded time and nothing is left."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from meshrec.mesh.launch import LaunchTimeout, RankDied, RankError, launch
from support.checkout import THIS_CHECKOUT
from support.rank_functions import die, fail_on, hang, pids, sleep_for, sum_of_ranks


def assert_gone(process_ids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in process_ids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in process_ids if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_results_come_back_by_rank(ranks):
    assert launch(sum_of_ranks, ranks, 10, timeout=60) == [(rank, 10 * ranks + sum(range(ranks))) for rank in range(ranks)]


def test_nothing_is_left_after_success():
    assert_gone(launch(pids, 2, timeout=60))


def test_the_first_rank_to_fail_is_named_with_its_own_traceback():
    start = time.monotonic()
    with pytest.raises(RankError, match="rank 1 failed: ValueError: planted") as caught:
        launch(fail_on, 3, 1, timeout=60)
    assert caught.value.rank == 1
    assert caught.value.cause == "ValueError: planted"
    assert "rank_functions.py" in str(caught.value)
    assert time.monotonic() - start < 30


def test_a_killed_rank_is_named_with_its_signal():
    with pytest.raises(RankDied, match=r"rank 1 died by SIGKILL"):
        launch(die, 2, 1, timeout=60, collective_timeout=20)


def test_ranks_that_hang_are_killed(tmp_path):
    with pytest.raises(LaunchTimeout, match=r"ranks \[0, 1\] did not finish within 4 s"):
        launch(hang, 2, tmp_path, timeout=4)
    assert_gone([int(file.name) for file in tmp_path.iterdir()])


def test_an_unpicklable_argument_starts_nothing():
    with pytest.raises((TypeError, AttributeError), match=r"pickle|local object"):
        launch(sleep_for, 2, lambda: None, timeout=5)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_rank_outlives_a_killed_launcher(tmp_path, how):
    script = (
        "from meshrec.mesh.launch import launch\n"
        "from support.rank_functions import write_pid_and_sleep\n"
        "from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        f"    launch(write_pid_and_sleep, 2, Path({str(tmp_path)!r}), timeout=100)\n"
    )
    path = tmp_path / "launcher.py"
    path.write_text(script)
    launcher = subprocess.Popen([sys.executable, str(path)], env=THIS_CHECKOUT, stderr=subprocess.DEVNULL)
    try:
        started = wait_for_pids(tmp_path, 2)
        launcher.send_signal(how)
        launcher.wait(timeout=20)
    finally:
        launcher.kill()
    assert_gone(started)


def wait_for_pids(folder: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [int(file.stem) for file in folder.glob("*.pid")]
        if len(found) == count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{count} ranks did not start")
