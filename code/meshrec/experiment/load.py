"""Reads an experiment file. Every error names the file, the line and the key, what was found and what was wanted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from meshrec.experiment.check import problems
from meshrec.experiment.schema import Experiment

KeyPath = tuple[str | int, ...]


class ExperimentError(ValueError):
    """An experiment file that can't be run. The message lists every problem found, one a line."""


def load_experiment(path: Path | str) -> Experiment:
    """Read and validate one experiment file.

    Raises:
        ExperimentError: the file is missing, is no YAML, or breaks the schema; unknown keys, repeated keys, cells that
            would compute the same thing and meshes that can't exist are all named by file, line and key.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"{path}: can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ExperimentError(f"{path}: can't be read: byte {error.start} is no UTF-8; save the file as UTF-8") from error
    lines = _lines_of_keys(path, text)
    try:
        experiment = Experiment.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ExperimentError(f"{path}: is no plain YAML: {error}") from None
    except ValidationError as error:
        raise _report(path, lines, _schema_problems(error)) from None
    found = list(problems(experiment, path.stem))
    if found:
        raise _report(path, lines, found)
    return experiment


def _schema_problems(error: ValidationError) -> Iterator[tuple[KeyPath, str]]:
    for entry in error.errors():
        message = entry["msg"].removeprefix("Value error, ")
        if entry["type"] == "extra_forbidden":
            message = "unknown key; remove it or correct its spelling"
        elif entry["type"] != "value_error" and not isinstance(entry["input"], dict | list):
            message = f"found {entry['input']!r}: {message}"
        key = entry["loc"]
        if isinstance(entry["input"], dict) and key[-1:] == (entry["input"].get("kind"),):
            key = key[:-1]  # the branch of a union is no key of the file
        yield key, message


def _report(path: Path, lines: dict[KeyPath, int], found: Any) -> ExperimentError:
    described = []
    for key, message in found:
        keys, line = _locate(key, lines)
        described.append(f"{path}:{line}: {'.'.join(map(str, keys)) or 'file'}: {message}")
    return ExperimentError("\n".join(described))


def _locate(key: KeyPath, lines: dict[KeyPath, int]) -> tuple[KeyPath, int]:
    """Key as written in the file (pydantic adds the branch of a union to its path) and the nearest line that holds it."""
    written: KeyPath = ()
    for part in key:
        if (*written, part) in lines:
            written = (*written, part)
        elif (*written, str(part)) in lines:  # a number as a mapping's key
            written = (*written, str(part))
        elif part == key[-1] and isinstance(part, str) and "[" not in part:
            return (*written, part), lines.get(written, 1)  # a key that is missing from the file
    return written, lines.get(written, 1)


def _lines_of_keys(path: Path, text: str) -> dict[KeyPath, int]:
    """Line of every key and list entry. PyYAML keeps the last of two equal keys in silence: here that is an error."""
    lines: dict[KeyPath, int] = {}

    def visit(node: yaml.Node | None, key: KeyPath) -> None:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                line = name.start_mark.line + 1
                if not isinstance(name, yaml.ScalarNode):
                    raise ExperimentError(f"{path}:{line}: a list or mapping as a key, want a name")
                child = (*key, name.value)
                if child in lines:
                    where = ".".join(map(str, child))
                    raise ExperimentError(f"{path}:{line}: {where}: given twice, first in line {lines[child]}")
                lines[child] = line
                visit(value, child)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[(*key, index)] = value.start_mark.line + 1
                visit(value, (*key, index))

    try:
        visit(yaml.compose(text, Loader=yaml.SafeLoader), ())
    except yaml.YAMLError as error:
        raise ExperimentError(f"{path}: is no valid YAML: {error}") from error
    except RecursionError:
        raise ExperimentError(f"{path}: contains itself through a YAML anchor; write it out") from None
    return lines
