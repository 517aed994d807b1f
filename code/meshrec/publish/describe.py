"""What a store holds, for people: a page of text, three pictures and a table of exactly the numbers in it."""

import json
from pathlib import Path

import pandas as pd

from meshrec.data.describe import CATEGORIES, INTEGERS, Description, Part, describe_store, table_facts
from meshrec.data.store import MANIFEST
from meshrec.publish.describe_pictures import draw_frequencies, draw_integers, draw_missing
from meshrec.publish.files import whole_file, write_csv
from meshrec.publish.style import styled

PICTURES = {"frequencies.png": draw_frequencies, "missing.png": draw_missing, "integers.png": draw_integers}


def write_any_description(store: Path, out: Path) -> str:
    """Describe a store of rows or one of sequences.

    Raises:
        StoreError: the store can't be opened.
    """
    if kind_of(store) == "sequences":
        from meshrec.publish.describe_sequences import write_sequence_description

        return write_sequence_description(store, out)
    return write_description(store, out)


def kind_of(store: Path) -> str | None:
    """Kind of a store, as its manifest says; None where that can't be read."""
    try:
        content = json.loads((store / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    return content.get("kind") if isinstance(content, dict) else None


def write_description(store: Path, out: Path) -> str:
    """Write `features.csv` and the pictures into `out`; returns the page of text.

    Raises:
        StoreError: the store can't be opened.
    """
    description = describe_store(store)
    write_csv(features(description), out / "features.csv")
    for name, draw in PICTURES.items():
        with styled(), whole_file(out / name) as partial:
            draw(description).savefig(partial, metadata={"Software": None})
    return page(description)


def features(description: Description) -> pd.DataFrame:
    """One row a feature: missing rates of both parts, and for categories how the lookups are spread over the table's rows."""
    frame = pd.DataFrame(
        {
            "feature": INTEGERS + CATEGORIES,
            "missing_train": description.train.missing_rates if description.train.rows else float("nan"),
            "missing_evaluation": description.evaluation.missing_rates,
        }
    )
    facts = pd.DataFrame([vars(fact) for fact in table_facts(description)], index=range(len(INTEGERS), len(frame)))
    facts.columns = ["table_rows", "rows_hit", "rows_hit_once", "head_share", "rows_with_half", "shared_row_share"]
    return frame.join(facts.astype(dict.fromkeys(("table_rows", "rows_hit", "rows_hit_once", "rows_with_half"), "Int64")))


def page(description: Description) -> str:
    """The description in words and an aligned table."""
    manifest = description.manifest
    lines = [f"{manifest.name}, data {manifest.data_hash[:16]}", ""]
    lines += [_part("training", description.train), _part("evaluation", description.evaluation)]
    rejected = sum(manifest.rejected.values())
    lines.append(f"{rejected:,} lines of the source were rejected" if manifest.sources else "generated rows: no source")
    return "\n".join([*lines, "", _missing_text(description), "", _tables_text(description)])


def _part(name: str, part: Part) -> str:
    rate = "no labels" if part.click_rate is None else f"click rate {part.click_rate:.4f} ({part.clicks:,} clicks)"
    return f"{name:<10}  {part.rows:>13,} rows, {rate}"


def _missing_text(description: Description) -> str:
    rates = description.shown.missing_rates
    named = [f"{name} {100 * rate:.1f}" for name, rate in zip(INTEGERS + CATEGORIES, rates, strict=True) if rate > 0]
    text = f"missing fields, % of {description.shown_rows} (stored as −1 in integers, as table row 0 in categories):\n  "
    return text + (_wrapped(named) if named else "none")


def _wrapped(words: list[str], width: int = 10) -> str:
    return "\n  ".join("   ".join(words[start : start + width]) for start in range(0, len(words), width))


def _tables_text(description: Description) -> str:
    head = ["table", "rows", "hit", "hit once", "head %", "rows with half", "shared row %"]
    rows = [head]
    for name, fact in zip(CATEGORIES, table_facts(description), strict=True):
        shared = "–" if fact.shared is None else f"{100 * fact.shared:.1f}"
        numbers = [f"{number:,}" for number in (fact.rows, fact.hit, fact.once)]
        rows.append([name, *numbers, f"{100 * fact.head_share:.1f}", f"{fact.half:,}", shared])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"lookups of present categories in {description.shown_rows}:", *lines])
