"""Criteo text for the tests: random lines, a slow parser written apart from the one under test, and what became of a text."""

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest

from meshrec.data.columns import DataError
from meshrec.data.prepare import prepare
from meshrec.data.store import Store
from meshrec.experiment.schema import CriteoDataset

ROWS = [97] * 25 + [20_000]


def dataset(path: Path | str | list[str], **settings: object) -> CriteoDataset:
    fields: dict[str, object] = {"variant": "kaggle", "table_rows": ROWS, "path": path if isinstance(path, list) else str(path)}
    if settings.get("labelled", True) and "eval_days" not in settings:
        fields["eval_fraction"] = 0.5
    return CriteoDataset.model_validate({"kind": "criteo", **fields, **settings})


def fields(rng: random.Random, missing: float = 0.2) -> list[str]:
    """40 fields of a good line."""
    integers = [str(rng.choice([-3, -1, 0, 1, 2, 57, 123_456, 10**12])) for _ in range(13)]
    categories = [f"{rng.getrandbits(32):08x}" for _ in range(26)]
    kept = [value if rng.random() >= missing else "" for value in integers + categories]
    return [rng.choice("01"), *kept]


def good_lines(number: int, seed: int = 0, missing: float = 0.2) -> list[str]:
    rng = random.Random(seed)
    return ["\t".join(fields(rng, missing)) for _ in range(number)]


def spoiled(rng: random.Random, line: list[str]) -> list[str]:
    """The line with one of many faults, most of which make it bad and some not."""
    place = rng.randrange(40)
    values = [
        "0x12345678",
        "1234567",
        "123456789",
        "ABCDEF01",
        "g0000000",
        "5.0",
        "-",
        "+1",
        " 1",
        "1 ",
        "nan",
        "9" * 18,
        "9" * 19,
    ]
    values += ["", "-1", "2", "00000000", "ffffffff", "-0", "1\x00", "١", "1e5", "0\r", "--1", "01"]
    line[place] = rng.choice(values)
    if rng.random() < 0.2:
        del line[rng.randrange(40) :]
    if rng.random() < 0.1:
        line.append("")
    return line


def slow_parse(text: bytes, table_rows: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, dense and sparse of the good lines, field by field with Python's own numbers."""
    labels, dense, sparse = [], [], []
    for raw in text.split(b"\n"):
        parts = raw.decode("latin-1").removesuffix("\r").split("\t")
        if len(parts) != 40 or parts[0] not in ("0", "1"):
            continue
        if not all(re.fullmatch("(-?[0-9]{1,18})?", part) for part in parts[1:14]):
            continue
        if not all(re.fullmatch("([0-9a-fA-F]{8})?", part) for part in parts[14:]):
            continue
        labels.append(float(parts[0]))
        dense.append([math.log1p(max(int(part), 0)) if part else -1.0 for part in parts[1:14]])
        rows = zip(parts[14:], table_rows, strict=True)
        sparse.append([1 + int(part, 16) % (table - 1) if part else 0 for part, table in rows])
    return np.array(labels, np.float32), np.array(dense, np.float32), np.array(sparse, np.int32)


def build(tmp_path: Path, lines: list[str] | bytes | Path, **settings: object) -> Store:
    """Prepare lines, bytes or a file."""
    path = lines if isinstance(lines, Path) else tmp_path / "rows.tsv"
    if not isinstance(lines, Path):
        path.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
    return prepare(dataset(path, **{"table_rows": 1 << 20, **settings}), tmp_path / "store")


def accepted(store: Store) -> int:
    return store.manifest.train + store.manifest.evaluation


def rejected_lines(store: Store) -> list[list[str]]:
    """[line, field, found, reason] of each rejected line."""
    file = store.path / "rejected.tsv"
    return [line.split("\t")[1:] for line in file.read_text().splitlines()[1:]]


def column(store: Store, name: str, field: int) -> np.ndarray:
    return np.concatenate([getattr(part, name)[:, field] for part in (store.train, store.evaluation)])


def assert_refused(tmp_path: Path, lines: list[str] | bytes | Path, *patterns: str, **settings: object) -> None:
    """The text as a whole is an error, each pattern is in its message, and nothing is left behind."""
    with pytest.raises(DataError) as error:
        build(tmp_path, lines, **settings)
    for pattern in patterns:
        assert pattern in str(error.value)
    assert not (tmp_path / "store").exists()
    assert [entry.name for entry in tmp_path.glob(".store.partial*")] == []


def changed(line: str, field: int, value: str) -> str:
    parts = line.split("\t")
    parts[field] = value
    return "\t".join(parts)
