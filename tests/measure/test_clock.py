"""The clock with its time source in the test's hand, and once with the real one."""

import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from meshrec.measure import clock
from meshrec.measure.clock import PHASES, PhaseClock


@dataclass
class Time:
    """Seconds that pass only when the test says so."""

    now: float = 50.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Time:
    moment = Time()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: moment.now))
    return moment


def of(found: PhaseClock, phase: str) -> list[float]:
    return found.seconds[:, PHASES.index(phase)].tolist()


def test_every_phase_of_every_step_has_its_place(moment: Time):
    found = PhaseClock(2)
    for seconds in (1, 10):
        with found.step():
            with found.phase("lookup"):
                moment.passes(seconds)
            moment.passes(0.5)
            with found.phase("update"):
                moment.passes(2 * seconds)
    assert of(found, "lookup") == [1, 10]
    assert of(found, "update") == [2, 20]
    assert found.step_seconds.tolist() == [3.5, 30.5]
    assert found.seconds.sum() == 33


def test_a_phase_entered_twice_in_a_step_is_summed(moment: Time):
    found = PhaseClock(1)
    with found.step():
        for seconds in (1, 4):
            with found.phase("replica_sync"):
                moment.passes(seconds)
    assert of(found, "replica_sync") == [5]


def test_time_between_steps_belongs_to_none(moment: Time):
    found = PhaseClock(2)
    for _ in range(2):
        with found.step():
            moment.passes(1)
        moment.passes(100)
    assert found.step_seconds.tolist() == [1, 1]


def test_what_the_device_still_has_to_do_is_part_of_the_phase_and_the_step(moment: Time):
    found = PhaseClock(1, synchronise=lambda: moment.passes(8))
    with found.step(), found.phase("lookup"):
        moment.passes(1)
    assert of(found, "lookup") == [9]
    assert found.step_seconds.tolist() == [17]  # the phase, then the step's own wait


def test_a_resumed_run_keeps_the_times_of_the_steps_before(moment: Time):
    before = PhaseClock(3)
    for seconds in (1, 10):
        with before.step(), before.phase("lookup"):
            moment.passes(seconds)
    found = PhaseClock(3)
    found.resume(before.step_seconds[:2], before.seconds[:2])
    with found.step(), found.phase("lookup"):
        moment.passes(100)
    assert of(found, "lookup") == [1, 10, 100]
    assert found.step_seconds.tolist() == [1, 10, 100]
    assert of(before, "lookup") == [1, 10, 0]


def test_an_unknown_phase_is_an_error():
    with pytest.raises(ValueError, match="not in tuple"), PhaseClock(1).phase("lunch"):
        pass


def test_more_steps_than_there_is_room_for_are_an_error():
    found = PhaseClock(1)
    with found.step():
        pass
    with pytest.raises(IndexError), found.step():
        pass


def test_the_real_clock_counts_seconds_of_waiting_too():
    found = PhaseClock(1)
    start = time.monotonic()
    with found.step(), found.phase("data_wait"):
        time.sleep(0.05)
    elapsed = time.monotonic() - start
    assert 0.049 <= of(found, "data_wait")[0] <= found.step_seconds[0] <= elapsed + 1e-3
    assert np.count_nonzero(found.seconds) == 1
