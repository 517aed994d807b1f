"""What a store of sequences holds, for people: a page of text and a picture of item popularity and of users' lengths."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from meshrec.data.sequences.store import SequenceManifest, SequenceStore, open_sequences
from meshrec.publish.files import whole_file
from meshrec.publish.style import OTHER, REFERENCE, styled

WIDTH_INCHES = 5.6
DRAWN_POINTS = 400


@dataclass(frozen=True)
class SequenceDescription:
    """Counts of a store of sequences."""

    manifest: SequenceManifest
    popularity: NDArray[np.int64]
    """Events of each item, most popular first."""
    lengths: NDArray[np.int64]
    """Events of each user, most active first."""
    ties: float | None
    """Part of the events that have the time of the same user's event before; None without times."""

    @property
    def half(self) -> int:
        """Most popular items that have half of the events."""
        return int(np.searchsorted(np.cumsum(self.popularity), self.popularity.sum() / 2)) + 1


def describe_sequences(path: Path) -> SequenceDescription:
    """Read a store once.

    Raises:
        StoreError: it can't be opened.
    """
    store = open_sequences(path)
    popularity = np.bincount(store.items, minlength=store.item_count + 1)[1:]
    lengths = np.diff(store.starts)
    return SequenceDescription(store.manifest, np.sort(popularity)[::-1], np.sort(lengths)[::-1], _ties(store))


def _ties(store: SequenceStore) -> float | None:
    if store.times is None:
        return None
    same = np.diff(store.times) == 0
    same[store.starts[1:-1] - 1] = False  # there another user begins
    return float(same.sum() / max(len(store.times), 1))


def write_sequence_description(store: Path, out: Path) -> str:
    """Write `sequences.png` into `out`; returns the page of text.

    Raises:
        StoreError: the store can't be opened.
    """
    description = describe_sequences(store)
    with styled(), whole_file(out / "sequences.png") as partial:
        draw_sequences(description).savefig(partial, metadata={"Software": None})
    return page(description)


def page(description: SequenceDescription) -> str:
    """The description in words."""
    counts, lengths = description.manifest.counts, description.lengths
    least, median, nine, most = np.quantile(lengths, [0, 0.5, 0.9, 1]).round().astype(int)
    density = 100 * counts.events / (counts.users * counts.items)
    head = 100 * description.popularity[0] / counts.events
    ties = "no times" if description.ties is None else f"{100 * description.ties:.1f} % at the time of the user's event before"
    lines = [
        f"{description.manifest.name}, data {description.manifest.data_hash[:16]}",
        "",
        f"{counts.users:,} users, {counts.items:,} items, {counts.events:,} events ({density:.2f} % of all pairs); {ties}",
        f"events a user: {least:,} to {most:,}, median {median:,}, nine of ten up to {nine:,}",
        f"most popular item: {head:.1f} % of the events; half of them go to the first {description.half:,}",
        f"{sum(description.manifest.rejected.values()):,} lines of the source were rejected",
    ]
    return "\n".join(lines)


def draw_sequences(description: SequenceDescription) -> Figure:
    """Left the items, right the users, by rank; both axes in log scale."""
    figure = Figure(figsize=(WIDTH_INCHES, 2.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curve(left, description.popularity, "item", REFERENCE)
    _curve(right, description.lengths, "user", OTHER)
    figure.suptitle(f"{description.manifest.name}: events by rank", fontsize=8, x=0.01, ha="left")
    return figure


def _curve(axes: Axes, events: NDArray[np.int64], whose: str, colour: str) -> None:
    ranks = np.unique(np.geomspace(1, len(events), DRAWN_POINTS).round().astype(np.int64))
    axes.plot(ranks, events[ranks - 1], color=colour, linewidth=1.4)
    axes.set(xscale="log", yscale="log", xlabel=f"rank of the {whose}, {len(events):,} in all", ylabel=f"events of the {whose}")
    axes.set_ylim(bottom=0.7)
    axes.minorticks_off()
