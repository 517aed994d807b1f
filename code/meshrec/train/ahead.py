"""The next batch, fetched and exchanged while a step computes: three stages, the same numbers as one after the other."""

from collections.abc import Iterator

from meshrec.data import batches
from meshrec.embeddings.engine import Sent
from meshrec.measure.clock import PhaseClock
from meshrec.train.feed import Batch
from meshrec.train.trainer import Staged, Trainer


class Prefetch:
    """Stages of the batch after the one being trained: fetched and sent before the dense forward, received after the backward.

    Every rank runs its collectives in the same order, so that nothing can wait for the wrong one.
    """

    def __init__(self, trainer: Trainer, served: Iterator[batches.Batch]) -> None:
        self._trainer = trainer
        self._served = served
        self._sent: tuple[Batch, Sent] | None = None
        self._staged: Staged | None = None

    def fetch(self, clock: PhaseClock) -> None:
        """Take the next batch, if there is one, and send its ids."""
        with clock.phase("data_wait"):
            fetched = next(self._served, None)
            batch = self._trainer.feed(fetched) if fetched is not None else None
        if batch is not None:
            with clock.phase("input_exchange"):
                self._sent = batch, self._trainer.embeddings.send(batch.ids)

    def receive(self, clock: PhaseClock) -> None:
        """Take in the ids that were sent."""
        if self._sent is None:
            return
        (batch, sent), self._sent = self._sent, None
        with clock.phase("input_exchange"):
            self._staged = Staged(batch, self._trainer.embeddings.arrive(sent))

    def take(self, clock: PhaseClock) -> Staged:
        """The batch to train now; the first one is fetched on the spot."""
        if self._staged is None:
            self.fetch(clock)
            self.receive(clock)
        staged, self._staged = self._staged, None
        if staged is None:
            raise RuntimeError("no batch left to train")
        return staged
