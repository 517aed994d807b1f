"""Options of `meshrec prepare-sequences`, and the data set that they describe. Made without NumPy: every command has them."""

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from meshrec.experiment.sequences import FORMATS, SequenceDataset

OF_SUFFIXES: dict[str, dict[str, Any]] = {
    ".inter": {"format": "inter"},
    ".csv": {"format": "csv"},
    ".tsv": {"format": "csv", "separator": "tab"},
    ".json": {"format": "json_lines"},
    ".jsonl": {"format": "json_lines"},
    ".ndjson": {"format": "json_lines"},
}
"""What a file's name says when no format is given."""
TEXT_OPTIONS = ("format", "separator", "columns", "user", "item", "target", "time")
DATASET_OPTIONS = ("newest_first", "duplicates", "min_user_events", "min_item_events", "max_rejected")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; those that are left out have the defaults of `SequenceDataset`."""
    parser.add_argument("file", metavar="FILE", help="text, plain or compressed by gzip or zstd")
    parser.add_argument("--out", type=Path, required=True, help="folder of the store")
    parser.add_argument("--format", choices=FORMATS, help="what a line is; told by the file's suffix when left out")
    parser.add_argument("--separator", choices=("comma", "tab", "semicolon"), help="of csv; comma when left out")
    parser.add_argument("--columns", help="names of a csv's columns, separated by commas, if it has no header line")
    for field in ("user", "item", "time"):
        parser.add_argument(f"--{field}", metavar="FIELD", help=f"field of the {field} in csv, inter and json_lines")
    parser.add_argument("--target", metavar="FIELD", help="inter: field of further items that follow a token_seq")
    parser.add_argument("--no-time", action="store_true", help="the order of the file is that of time")
    parser.add_argument("--newest-first", action="store_true", default=None, help="the file goes back in time")
    parser.add_argument("--duplicates", choices=("keep", "drop"), help="events alike in user, item and time; kept")
    parser.add_argument("--min-user-events", type=int, metavar="N", help="fewer leave a user out; 3")
    parser.add_argument("--min-item-events", type=int, metavar="N", help="fewer leave an item out; 1")
    parser.add_argument("--max-rejected", type=int, metavar="N", help="bad lines that are left out; 100000")


def dataset_of(options: argparse.Namespace) -> SequenceDataset:
    """The data set that options describe.

    Raises:
        SequenceError: they make no sense; the message names the option.
    """
    from meshrec.data.sequences.text import SequenceError

    text = _text_of(options)
    settings = {name: value for name in DATASET_OPTIONS if (value := getattr(options, name)) is not None}
    try:
        return SequenceDataset.model_validate({"path": options.file, "text": text, **settings})
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"] if part != "text" and part not in FORMATS]
        option = f"--{where[0].replace('_', '-')}: " if where else ""
        unknown = f"format {text['format']} has no such field" if first["type"] == "extra_forbidden" else None
        raise SequenceError(f"{option}{unknown or first['msg'].removeprefix('Value error, ')}") from None


def _text_of(options: argparse.Namespace) -> dict[str, Any]:
    from meshrec.data.sequences.text import SequenceError

    guessed: dict[str, Any] = {}
    if options.format is None:
        suffixes = [suffix for suffix in Path(options.file).suffixes if suffix in OF_SUFFIXES]
        if not suffixes:
            raise SequenceError(
                f"--format: {options.file} doesn't tell by its suffix what it is; want one of {', '.join(FORMATS)}"
            )
        guessed = OF_SUFFIXES[suffixes[-1]]
    given = {name: value for name in TEXT_OPTIONS if (value := getattr(options, name)) is not None}
    if options.no_time:
        if options.time is not None:
            raise SequenceError("--no-time: contradicts --time; give one of them")
        given["time"] = None
    if options.columns is not None:
        given["columns"] = options.columns.split(",")
    return guessed | given
