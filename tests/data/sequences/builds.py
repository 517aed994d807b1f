"""Builds stores from text, and reads them back as ids."""

from pathlib import Path

from meshrec.data.sequences.prepare import prepare_sequences
from meshrec.data.sequences.store import SequenceStore
from meshrec.experiment.sequences import SequenceDataset

CSV = {"format": "csv"}
HEAD = "user_id,item_id,rating,timestamp\n"


def build(folder: Path, text: str | bytes, form: dict | str = "csv", name: str = "events.txt", **settings) -> SequenceStore:
    """The store of a file that holds a text."""
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    form = {"format": form} if isinstance(form, str) else form
    return prepare_sequences(SequenceDataset.model_validate({"path": str(file), "text": form, **settings}), folder / "store")


def sequences_of(store: SequenceStore) -> dict[str, list[str]]:
    """User id → item ids, oldest first."""
    users, items = store.ids("users"), store.ids("items")
    parts = zip(users, store.starts[:-1], store.starts[1:], strict=True)
    return {user: [items[number - 1] for number in store.items[start:stop]] for user, start, stop in parts}


def rejected_lines(store: SequenceStore) -> list[list[str]]:
    """Fields of the lines of rejected.tsv, but for its header and the file's name."""
    return [line.split("\t")[1:] for line in (store.path / "rejected.tsv").read_text(encoding="utf-8").split("\n")[1:-1]]
