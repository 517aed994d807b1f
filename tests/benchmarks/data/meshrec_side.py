"""meshrec's side of `prepare_speed.py`: prepares the text whenever a line comes in, and prints the seconds."""

import sys
import time
from pathlib import Path

import meshrec.data.parse  # noqa: F401 - imported and compiled before anything is timed, as polars is
from meshrec.data.prepare import prepare
from meshrec.experiment.schema import CriteoDataset

TABLE_ROWS = 20_000


def main() -> None:
    """Arguments: text, folder of the store, workers."""
    text, out, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    settings = {"kind": "criteo", "variant": "kaggle", "path": text, "table_rows": TABLE_ROWS}
    dataset = CriteoDataset.model_validate(settings)
    for _ in sys.stdin:
        start = time.perf_counter()
        prepare(dataset, out, workers)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
