"""Seconds by phase and step on one rank."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

PHASES = (
    "data_wait",
    "input_exchange",
    "lookup",
    "output_exchange",
    "dense_forward",
    "dense_backward",
    "gradient_exchange",
    "update",
    "dense_all_reduce",
    "dense_update",
    "replica_sync",
)


class PhaseClock:
    """Collects the time of every phase in every step.

    A phase that waits for other ranks contains that wait.
    """

    def __init__(self, steps: int, synchronise: Callable[[], None] = lambda: None) -> None:
        """Room for so many steps; `synchronise` waits until the device has finished what it was given."""
        self.seconds: NDArray[np.float64] = np.zeros((steps, len(PHASES)))
        self.step_seconds: NDArray[np.float64] = np.zeros(steps)
        self._synchronise = synchronise
        self._step = 0

    def resume(self, step_seconds: NDArray[np.float64], seconds: NDArray[np.float64]) -> None:
        """Take over the times [steps], [steps, phases] of steps done before."""
        self._step = step_seconds.size
        self.step_seconds[: self._step] = step_seconds
        self.seconds[: self._step] = seconds

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one whole step, phases inside it."""
        start = time.perf_counter()
        yield
        self._synchronise()
        self.step_seconds[self._step] = time.perf_counter() - start
        self._step += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase of the current step."""
        column = PHASES.index(name)
        start = time.perf_counter()
        yield
        self._synchronise()
        self.seconds[self._step, column] += time.perf_counter() - start
