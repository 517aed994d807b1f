"""What the collectives of a run sent: calls and bytes by name, counted where the tensors are handed over."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Dimension = Literal["shard", "replicate", "world"]


@dataclass
class Entry:
    """Totals of one kind of collective on one rank."""

    dimension: Dimension
    calls: int = 0
    sent_bytes: float = 0.0


@dataclass
class Ledger:
    """Counts while it is open; evaluation and bookkeeping run with it closed."""

    entries: dict[str, Entry] = field(default_factory=dict)
    is_open: bool = True

    def add(self, name: str, dimension: Dimension, sent_bytes: float) -> None:
        """Count one call that sends so many bytes from this rank to others."""
        if self.is_open:
            entry = self.entries.setdefault(name, Entry(dimension))
            entry.calls += 1
            entry.sent_bytes += sent_bytes

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Suspend counting."""
        before, self.is_open = self.is_open, False
        try:
            yield
        finally:
            self.is_open = before
