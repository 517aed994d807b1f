"""Puts events into their final order: by user, then by time, then by their lines; filters them, and numbers the ids.

Ids are numbered in the order of their text, byte by byte. With times that all differ, the lines of a file may so be in any
order without a change of the result.
"""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshrec.data.sequences.read import RawEvents
from meshrec.data.sequences.text import SequenceError
from meshrec.experiment.sequences import SequenceDataset

logger = logging.getLogger(__name__)

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Sequences:
    """n events of u users in their final order."""

    items: NDArray[np.int32]
    """[n], numbers 1 … items; 0 is padding."""
    times: NDArray[np.int64] | None
    """[n]."""
    starts: NDArray[np.int64]
    """[u + 1]: user k has the events starts[k] … starts[k + 1] − 1, oldest first."""
    user_ids: list[str]
    """[u], in the order of their text."""
    item_ids: list[str]
    """The id of item number k + 1 is entry k; in the order of their text."""
    duplicates: int
    """Events like an earlier one in user, item and time."""
    core_rounds: int
    """Rounds of filtering that found something."""


def arrange(raw: RawEvents, dataset: SequenceDataset, name: str) -> Sequences:
    """Order, filter and number the events of a file called `name`.

    Raises:
        SequenceError: no user has enough events.
    """
    users, items, times = raw.users, raw.items, raw.times
    if dataset.newest_first:
        users, items, times = users[::-1], items[::-1], None if times is None else times[::-1]
    else:
        _warn_of_newest_first(users, times, name)
    order = np.argsort(users, kind="stable") if times is None else np.lexsort((times, users))
    users, items, times = users[order], items[order], None if times is None else times[order]
    repeated = np.zeros(len(users), bool) if times is None else _repeated(users, items, times)
    kept = ~repeated if dataset.duplicates == "drop" else np.ones(len(users), bool)
    rounds = _to_core(kept, users, items, dataset)
    if not kept.any():
        raise SequenceError(
            f"{name}: of {len(np.unique(users))} users none is left with {dataset.min_user_events} events of items that "
            f"have {dataset.min_item_events}; lower min_user_events and min_item_events, or check the format"
        )
    users, items, times = users[kept], items[kept], None if times is None else times[kept]
    users, user_ids = _numbered(users, raw.user_ids)
    items, item_ids = _numbered(items, raw.item_ids)
    order = np.argsort(users, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(user_ids)))]).astype(np.int64)
    final = (items[order] + 1).astype(np.int32)
    return Sequences(final, None if times is None else times[order], starts, user_ids, item_ids, int(repeated.sum()), rounds)


def _repeated(users: NDArray[np.int32], items: NDArray[np.int32], times: NDArray[np.int64]) -> Mask:
    """Which events are like an earlier one, for events that are sorted by user and time."""
    order = np.lexsort((items, times, users))
    same = np.ones(len(users) - 1, bool)
    for values in (users, items, times):
        ordered = values[order]
        same &= ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(users), bool)
    repeated[order[1:][same]] = True
    return repeated


def _to_core(kept: Mask, users: NDArray[np.int32], items: NDArray[np.int32], dataset: SequenceDataset) -> int:
    """Take events of users and items with too few kept events out of `kept`, until there are none. Returns the rounds."""
    rounds = 0
    while True:
        few_user = np.bincount(users[kept], minlength=users.max(initial=0) + 1) < dataset.min_user_events
        few_item = np.bincount(items[kept], minlength=items.max(initial=0) + 1) < dataset.min_item_events
        out = kept & (few_user[users] | few_item[items])
        if not out.any():
            return rounds
        kept &= ~out
        rounds += 1


def _numbered(numbers: NDArray[np.int32], ids: list[str]) -> tuple[NDArray[np.int32], list[str]]:
    """Numbers in the order of the ids' text, and the ids that occur in that order."""
    used, places = np.unique(numbers, return_inverse=True)
    texts = [ids[number] for number in used.tolist()]
    by_text = sorted(range(len(texts)), key=texts.__getitem__)  # code points sort as UTF-8's bytes do
    rank = np.empty(len(texts), np.int32)
    rank[by_text] = np.arange(len(texts), dtype=np.int32)
    return rank[places], [texts[place] for place in by_text]


def _warn_of_newest_first(users: NDArray[np.int32], times: NDArray[np.int64] | None, name: str) -> None:
    """Say so if the file goes back in time and has ties, whose order is then likely to be wrong."""
    if times is None:
        return
    order = np.argsort(users, kind="stable")
    steps = np.diff(times[order])[np.diff(users[order]) == 0]
    back, on = int((steps < 0).sum()), int((steps > 0).sum())
    if back > 9 * on and (steps == 0).any():
        logger.warning(
            "%s: seems to go back in time, and %d events are at the same time as their user's next line: their order is the "
            "file's; set newest_first if the later line is the earlier event",
            name,
            int((steps == 0).sum()),
        )
