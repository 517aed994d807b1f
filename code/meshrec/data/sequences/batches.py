"""Which rank sees which users in which step: training in a seeded order, evaluation in the order of the store.

Sequences are padded on the left with item 0, so that the last column is a user's latest item and every row ends where the next
one is to be predicted. A row of nothing but 0 fills up the last step: it has no item, no target, and no part in any sum.

    training     inputs  int32 [b, L]  items t … t + L − 1 of a user's training events, of which the last L + 1 are taken
                 targets int32 [b, L]  items t + 1 … t + L: what is to be predicted after each input; 0 where the input is 0
    evaluation   history int32 [b, L]  all that the user had before, or the last L of it
                 target  int32 [b]     the event that is held out; 0 in rows that only fill up
                 users   int64 [b]     users; −1 in rows that only fill up

b is the batch of one rank. The ranks' batches of a step, put together in the order of ranks, are the same for every number of
ranks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshrec.data.sequences.store import SequenceStore

PADDING = 0
HELD_OUT = 2
"""Events at the end of a user that aren't trained on: one for validation, then one for testing."""
_ORDER_STREAM = 0x5E90
"""Keeps orders of users apart from other uses of the same seed."""
Part = Literal["validation", "test"]


@dataclass(frozen=True)
class SequenceBatch:
    """A rank's b training sequences of a step; see the module for the shapes."""

    inputs: NDArray[np.int32]
    targets: NDArray[np.int32]


@dataclass(frozen=True)
class HistoryBatch:
    """A rank's b users of an evaluation step; see the module for the shapes."""

    users: NDArray[np.int64]
    history: NDArray[np.int32]
    target: NDArray[np.int32]


def trainable_users(store: SequenceStore) -> NDArray[np.int64]:
    """Users with at least two training events, int64 [n]: fewer have nothing to predict and nothing to predict it from."""
    return np.flatnonzero(np.diff(store.starts) >= HELD_OUT + 2).astype(np.int64)


def user_order(users: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """A permutation of range(users), int64, that depends on these three numbers alone."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((_ORDER_STREAM, seed, epoch))))
    return rng.permutation(users).astype(np.int64, copy=False)


def padded(store: SequenceStore, begin: NDArray[np.int64], end: NDArray[np.int64], length: int) -> NDArray[np.int32]:
    """Events begin … end − 1 of the store, int64 [b] each, or the last `length` of them: int32 [b, length]."""
    places = end[:, None] - length + np.arange(length)
    inside = places >= begin[:, None]
    return np.where(inside, store.items[np.where(inside, places, 0)], PADDING).astype(np.int32)


class TrainingSequences:
    """One rank's part of one epoch: every trainable user once, in an order that seed and epoch decide."""

    def __init__(
        self, store: SequenceStore, length: int, global_batch: int, rank: int, ranks: int, seed: int, epoch: int
    ) -> None:
        """Sequences of `length` inputs, `global_batch` users in a step over all ranks.

        Raises:
            ValueError: no length, no such rank, a global batch that the ranks don't divide, or no user to train on.
        """
        _check(length, rank, ranks)
        if global_batch < 1 or global_batch % ranks:
            raise ValueError(f"global batch {global_batch}: want a positive multiple of {ranks} ranks")
        users = trainable_users(store)
        if len(users) == 0:
            raise ValueError(f"{store.path}: no user has two training events, want at least one that has")
        self._store = store
        self._length = length
        self._users = _filled(users[user_order(len(users), seed, epoch)], global_batch, rank, ranks)

    def __len__(self) -> int:
        """Steps, the same on every rank."""
        return len(self._users)

    def __iter__(self) -> Iterator[SequenceBatch]:
        return self.served_from(0)

    def served_from(self, first: int) -> Iterator[SequenceBatch]:
        """Batches of the steps from `first` on."""
        for users in self._users[first:]:
            begin, end = _events(self._store, users, HELD_OUT)
            items = padded(self._store, begin, end, self._length + 1)
            inputs = items[:, :-1]
            yield SequenceBatch(inputs.copy(), np.where(inputs == PADDING, PADDING, items[:, 1:]))


class EvaluationSequences:
    """One rank's part of the evaluation: every user on exactly one rank, equally many equal batches on all ranks."""

    def __init__(self, store: SequenceStore, part: Part, batch: int, rank: int, ranks: int, length: int | None = None) -> None:
        """Predict each user's validation event from its training events, or its test event from all before it.

        Args:
            store: of all users.
            part: which event is the target.
            batch: users in a step over all ranks, at most (or one a rank, if that is more).
            rank: this one.
            ranks: of them all.
            length: columns of the history; those of the longest when left out, so that no event is cut off.

        Raises:
            ValueError: no length, no batch, no such rank or part.
        """
        if part not in ("validation", "test") or batch < 1:
            raise ValueError(f"part {part!r} in batches of {batch}: want validation or test, and at least 1")
        held_out = HELD_OUT if part == "validation" else 1
        self.length = int(np.diff(store.starts).max()) - held_out if length is None else length
        """L."""
        _check(self.length, rank, ranks)
        self._store = store
        self._held_out = held_out
        self._users = _filled(np.arange(store.users), max(1, batch // ranks) * ranks, rank, ranks)

    def __len__(self) -> int:
        """Steps, the same on every rank."""
        return len(self._users)

    def __iter__(self) -> Iterator[HistoryBatch]:
        for users in self._users:
            begin, end = _events(self._store, users, self._held_out)
            target = np.where(users < 0, PADDING, self._store.items[end]).astype(np.int32)
            yield HistoryBatch(users, padded(self._store, begin, end, self.length), target)


def _filled(users: NDArray[np.int64], global_batch: int, rank: int, ranks: int) -> NDArray[np.int64]:
    """A rank's users in each step, int64 [steps, global_batch / ranks]; −1 fills up the last one."""
    steps = math.ceil(len(users) / global_batch)
    everything = np.full(steps * global_batch, -1, np.int64)
    everything[: len(users)] = users
    return everything.reshape(steps, ranks, -1)[:, rank]


def _events(store: SequenceStore, users: NDArray[np.int64], held_out: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First event and the one after the last that may be seen, int64 [b] each; no event for user −1."""
    begin = store.starts[np.maximum(users, 0)]
    end = np.where(users < 0, begin, store.starts[np.maximum(users, 0) + 1] - held_out)
    return begin, end


def _check(length: int, rank: int, ranks: int) -> None:
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} ranks: want 0 ≤ rank < ranks")
    if length < 1:
        raise ValueError(f"length {length}: want at least 1")
