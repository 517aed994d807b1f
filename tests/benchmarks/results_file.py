"""Where raw numbers go: `results/benchmarks/`, ignored by git, one file for each command line."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "results" / "benchmarks"


def write(name: str, content: dict[str, Any]) -> Path:
    """Write a JSON file, whole or not at all; an earlier one of the same name is replaced."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    descriptor, partial = tempfile.mkstemp(prefix=f".{name}.", suffix=".json", dir=FOLDER)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return path
