"""Lines that are no rows: counted, located and explained, up to a ceiling that stops a hopeless file early."""

from collections import Counter
from pathlib import Path
from typing import Any

from meshrec.data.layout import CriteoError, Layout
from meshrec.data.store import REJECTED
from meshrec.experiment.schema import DENSE_FEATURES

HEAD = "file\tline\tfield\tfound\treason\n"
LONGEST_SHOWN = 40
"""Bytes of a bad field that are shown."""


class RejectLog:
    """Writes `rejected.tsv` as lines are rejected. The file is there only if there are any."""

    def __init__(self, folder: Path, most: int, state: dict[str, Any] | None = None) -> None:
        """Log into `folder`; `state` is what `state` said at the checkpoint that is gone on from."""
        self._file = folder / REJECTED
        self.most = most
        self.counts: Counter[str] = Counter(state["counts"] if state else {})
        """Reason → lines."""
        self.first: str | None = state["first"] if state else None
        """The first one, in words."""
        self._bytes = int(state["bytes"]) if state else 0
        if self._file.exists():
            with self._file.open("r+b") as file:
                file.truncate(self._bytes)

    @property
    def total(self) -> int:
        """Rejected lines so far."""
        return self.counts.total()

    def state(self) -> dict[str, Any]:
        """What a build that goes on from here needs, as a JSON value."""
        return {"counts": dict(self.counts), "bytes": self._bytes, "first": self.first}

    def add(self, name: str, lines: list[tuple[int, str, str, str, str]]) -> None:
        """Log rejected lines of a file: number, kind of reason, field, what was found, reason in words.

        Raises:
            CriteoError: these are more than the ceiling.
        """
        if not lines:
            return
        text = "".join(f"{name}\t{line}\t{field}\t{found}\t{why}\n" for line, _, field, found, why in lines)
        with self._file.open("ab") as file:
            file.write(((HEAD if self._bytes == 0 else "") + text).encode())
            self._bytes = file.tell()
        self.counts.update(kind for _, kind, *_ in lines)
        if self.first is None:
            line, _, field, found, why = lines[0]
            self.first = f"{name}: {line}: {field}: found {found}, {why}"
        if self.total > self.most:
            raise CriteoError(
                f"{name}: line {lines[-1][0]}: more than {self.most} lines are rejected ({self.described}); the first: "
                f"{self.first}. Check the file, declare its variant under dataset.text, or raise dataset.max_rejected"
            )

    @property
    def described(self) -> str:
        """Counts in words."""
        return ", ".join(f"{reason} {number}" for reason, number in sorted(self.counts.items()))


def explain(reason: str, fields: list[bytes], field: int, layout: Layout) -> tuple[str, str, str]:
    """Name of the bad field, what was found there, and what was wanted."""
    if reason in ("columns", "unlabelled"):
        hint = f"; looks unlabelled (hex in column {layout.index + DENSE_FEATURES + 1})" if reason == "unlabelled" else ""
        found = "blank line" if fields == [b""] else f"{len(fields)} columns"
        return "row", found, f"want {layout.columns}{hint}"
    found = ascii(fields[field][:LONGEST_SHOWN].decode("latin-1"))
    if reason == "label":
        return "label", found, "want 0 or 1"
    feature = field - layout.index - layout.labelled
    if reason == "integer":
        return f"I{feature + 1}", found, "want an integer of at most 18 digits, or nothing"
    return f"C{feature - DENSE_FEATURES + 1}", found, "want 8 hexadecimal digits, or nothing"
