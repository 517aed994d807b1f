"""One line of a preflight, and all of them as text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "fails"]
"""`note` is worth knowing and stops nothing."""


class DoctorError(RuntimeError):
    """Something that is needed is missing or won't fit."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, what is needed, and what to make of it."""

    what: str
    found: str
    needed: str
    verdict: Verdict
    advice: str = ""
    """What to do; empty where nothing is to be done."""


def finding(what: str, found: str, needed: str, fits: bool, advice: str, otherwise: Verdict = "fails") -> Finding:
    """A finding that is `ok` where it fits, else what `otherwise` says, with advice."""
    return Finding(what, found, needed, "ok") if fits else Finding(what, found, needed, otherwise, advice)


def findings_text(findings: Iterable[Finding]) -> str:
    """Aligned lines; advice stands below its line."""
    rows = [("what", "found", "needed", "verdict", ""), *((f.what, f.found, f.needed, f.verdict, f.advice) for f in findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        lines.append("  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]).rstrip())
        if row[4]:
            lines.append(f"    → {row[4]}")
    return "\n".join(lines)
