"""Memory of a preparation: what ten times the text takes more is noise, with hashed categories and with vocabularies."""

import json
import subprocess
import sys

import numpy as np
import pytest

HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
PEAK = """
import resource, sys
from pathlib import Path
from meshrec.data import counting, source, vocabulary
from meshrec.data.prepare import prepare
from meshrec.experiment.schema import CriteoDataset
source.CHUNK_BYTES, counting.MOST_ENTRIES, vocabulary.COUNTED_ROWS = 1 << 18, 200_000, 4096
prepare(CriteoDataset.model_validate_json(sys.argv[1]), Path(sys.argv[2]), 2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_rows(path, rows):
    """Rows whose categories are nearly all different: the worst case for counting."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(rows // 4000):
            label, tabs = rng.integers(48, 50, (4000, 1), np.uint8), np.full((4000, 39, 1), 9, np.uint8)
            integers = np.concatenate([tabs[:, :13], rng.integers(48, 58, (4000, 13, 2), np.uint8)], axis=2)
            categories = np.concatenate([tabs[:, 13:], HEX[rng.integers(0, 16, (4000, 26, 8), np.uint8)]], axis=2)
            ends = np.full((4000, 1), 10, np.uint8)
            parts = label, integers.reshape(4000, -1), categories.reshape(4000, -1), ends
            file.write(np.concatenate(parts, axis=1).tobytes())


def peak_megabytes(tmp_path, rows, categories):
    path = tmp_path / f"{rows}.tsv"
    if not path.exists():
        write_rows(path, rows)
    settings = {"kind": "criteo", "variant": "kaggle", "path": str(path), "table_rows": 20_000, "categories": categories}
    command = [sys.executable, "-c", PEAK, json.dumps(settings), str(tmp_path / f"store-{rows}-{categories['kind']}")]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout) / 1024


@pytest.mark.parametrize(
    "categories", [{"kind": "hashed"}, {"kind": "vocabulary", "min_count": 2}], ids=lambda given: given["kind"]
)
def test_ten_times_the_text_takes_no_more_memory(tmp_path, categories):
    small, large = (peak_megabytes(tmp_path, rows, categories) for rows in (8_000, 80_000))
    assert (tmp_path / "80000.tsv").stat().st_size > 20e6
    assert large < small + 20
    assert large < 2048
