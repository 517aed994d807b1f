"""What one line of each format says. A parser is made from the settings and, where the format has one, the header line."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from meshrec.data.sequences.text import BadLine, SequenceError, parse_time, shown
from meshrec.experiment.sequences import Csv, Inter, JsonLines, Pairs, SequenceText, UserLines

BLANKS = re.compile("[ \t]+")
SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";"}
MOST_NAMES = 12
"""Columns that a message lists."""
USER_NAMES = {"user", "user_id", "userid", "uid", "reviewerid", "reviewer_id"}
ITEM_NAMES = {"item", "item_id", "itemid", "iid", "asin", "parent_asin", "product_id", "movie_id"}


@dataclass(frozen=True)
class Events:
    """A line's events: one user, its items, and as many times where the file has times. Ids are as they stand there."""

    user: str
    items: list[str]
    times: list[int] | None


Parse = Callable[[str], Events]


@dataclass(frozen=True)
class Parser:
    """Reads lines of one file. `user_field` and `item_field` name the fields in messages."""

    parse: Parse
    header: bool = False
    """The first line is none of events."""
    whole_users: bool = False
    """A line holds all events of its user, so that a second one of the same user is an error."""
    user_field: str = "user"
    item_field: str = "item"


def parser_of(text: SequenceText, name: str, first: str) -> Parser:
    """A parser for a file whose first line is `first`.

    Raises:
        SequenceError: the first line says that the file is another than the settings say; the message names the file.
    """
    match text:
        case UserLines():
            return Parser(_parse_user_line, whole_users=True)
        case Pairs():
            return Parser(_parse_pair)
        case Inter():
            return _inter_parser(text, name, first)
        case Csv():
            return _csv_parser(text, name, first)
        case JsonLines():
            return _json_parser(text, name, first)
    assert_never(text)


# --- blanks ------------------------------------------------------------------------------------------------------------


def _parse_user_line(line: str) -> Events:
    user, *items = BLANKS.split(line.strip(" \t"))
    if not items:
        raise BadLine("columns", "row", "a user without items", "want the user and at least one item")
    return Events(user, items, None)


def _parse_pair(line: str) -> Events:
    fields = BLANKS.split(line.strip(" \t"))
    if len(fields) != 2:
        hint = "; one user a line is format user_lines" if len(fields) > 2 else ""
        raise BadLine("columns", "row", f"{len(fields)} columns", f"want 2, user and item{hint}")
    return Events(fields[0], fields[1:], None)


# --- RecBole's .inter --------------------------------------------------------------------------------------------------


def _inter_parser(text: Inter, name: str, first: str) -> Parser:
    fields = [field.partition(":") for field in first.split("\t")]
    names = [field for field, _, _ in fields]
    if not all(colon and kind in ("token", "token_seq", "float", "float_seq") for _, colon, kind in fields):
        raise SequenceError(
            f"{name}: line 1: found {shown(first)}, want RecBole's header of tab-separated name:type, such as "
            "user_id:token and item_id:token; add it, or give another format"
        )
    kinds = dict(zip(names, (kind for _, _, kind in fields), strict=True))
    user, item, target, time = (
        None if field is None else _place(names, field, key, name)
        for key, field in (("user", text.user), ("item", text.item), ("target", text.target), ("time", text.time))
    )
    _require_kind(kinds, text.user, ("token",), name)
    _require_kind(kinds, text.item, ("token", "token_seq"), name)
    whole = kinds[text.item] == "token_seq"
    if target is not None and not whole:
        raise SequenceError(f"{name}: line 1: target needs an item field of type token_seq, {text.item!r} is a token")
    assert user is not None
    assert item is not None

    def values_of(text: str) -> list[str]:
        """Values of a field: the one of a token, those of a token_seq."""
        return text.split(" ") if whole and text else [] if whole else [text]

    def parse(line: str) -> Events:
        values = _fields(line.split("\t"), len(names))
        items = values_of(values[item]) + ([] if target is None else values_of(values[target]))
        times = None if time is None else _times(values_of(values[time]), items, text.time or "")
        return Events(values[user], items, times)

    return Parser(parse, header=True, whole_users=whole, user_field=text.user, item_field=text.item)


def _require_kind(kinds: dict[str, str], field: str, wanted: tuple[str, ...], name: str) -> None:
    if kinds[field] not in wanted:
        raise SequenceError(
            f"{name}: line 1: field {field!r} has type {kinds[field]}, want {' or '.join(wanted)}: ids are text, never numbers"
        )


def _times(texts: list[str], items: list[str], field: str) -> list[int]:
    if len(texts) != len(items):
        raise BadLine("time", field, f"{len(texts)} times", f"want {len(items)}, one for each item")
    return [parse_time(text, field) for text in texts]


def _place(names: list[str], field: str, key: str, name: str, hint: str = "") -> int:
    """Where a field stands in a line."""
    if (times := names.count(field)) != 1:
        problem = "no column" if times == 0 else f"{times} columns named"
        found = f"{names[:MOST_NAMES]}" + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
        raise SequenceError(f"{name}: line 1: {problem} {field!r}; found {found}; set {key} to the column's name{hint}")
    return names.index(field)


def _fields(values: list[str], wanted: int) -> list[str]:
    if len(values) != wanted:
        raise BadLine("columns", "row", f"{len(values)} columns", f"want {wanted}")
    return values


# --- separated by commas and the like ----------------------------------------------------------------------------------


def _csv_parser(text: Csv, name: str, first: str) -> Parser:
    separator = SEPARATORS[text.separator]
    try:
        found = _split(first, separator)
    except BadLine as error:
        raise SequenceError(f"{name}: line 1: found {error.found}, {error.wanted}") from None
    names = found if text.columns is None else text.columns
    hint = "" if text.columns else ", or separator, or columns if the file has no header line"
    user, item = _place(names, text.user, "user", name, hint), _place(names, text.item, "item", name, hint)
    time = None if text.time is None else _place(names, text.time, "time (null if there is none)", name, hint)
    if text.columns is not None and len(found) == len(names) and _is_header(found, user, item, text):
        raise SequenceError(f"{name}: line 1: found {found}, a header line; leave columns out, and set user, item and time")

    def parse(line: str) -> Events:
        values = _fields(_split(line, separator), len(names))
        return Events(values[user], [values[item]], None if time is None else [parse_time(values[time], text.time or "")])

    return Parser(parse, header=text.columns is None, user_field=text.user, item_field=text.item)


def _is_header(fields: list[str], user: int, item: int, text: Csv) -> bool:
    """Whether a line holds names of columns where ids are expected."""
    users, items = USER_NAMES | {text.user.lower()}, ITEM_NAMES | {text.item.lower()}
    return fields[user].strip().lower() in users | items and fields[item].strip().lower() in users | items


def _split(line: str, separator: str) -> list[str]:
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error as error:
        raise BadLine("quotes", "row", str(error), "want fields whose double quotes are closed in the same line") from None


# --- JSON --------------------------------------------------------------------------------------------------------------


class _Number(str):
    """A JSON number as it is written: an id 7 is the text 7, and never 7.0."""


class _Float(str):
    """A JSON number with a fraction or an exponent, as it is written."""


def _json_parser(text: JsonLines, name: str, first: str) -> Parser:
    if first.lstrip().startswith("["):
        raise SequenceError(f"{name}: line 1: found {shown(first)}, want one JSON object a line; turn the array into lines")
    wanted = {text.user, text.item, text.time}
    decoder = json.JSONDecoder(
        object_pairs_hook=lambda pairs: _object(pairs, wanted), parse_int=_Number, parse_float=_Float, parse_constant=_Float
    )

    def parse(line: str) -> Events:
        try:
            found: Any = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise BadLine("json", "row", f"{shown(line)}: {error}", "want a JSON object") from None
        if not isinstance(found, dict):
            raise BadLine("json", "row", shown(line), "want a JSON object")
        user, item = _json_id(found, text.user), _json_id(found, text.item)
        return Events(user, [item], None if text.time is None else [_json_time(found, text.time)])

    return Parser(parse, user_field=text.user, item_field=text.item)


def _object(pairs: list[tuple[str, Any]], wanted: set[str | None]) -> dict[str, Any]:
    """An object, in which no wanted key is there twice: the second would replace the first in silence."""
    found = dict(pairs)
    if len(found) < len(pairs) and (twice := [key for key in wanted if sum(key == other for other, _ in pairs) > 1]):
        raise BadLine("json", str(twice[0]), "the key twice", "want it once")
    return found


def _value(found: dict[str, Any], key: str) -> Any:
    if key not in found:
        raise BadLine("json", key, f"keys {shown(', '.join(found))}", f"want {key!r}; set user, item and time")
    return found[key]


def _json_id(found: dict[str, Any], key: str) -> str:
    value = _value(found, key)
    if not isinstance(value, str) or isinstance(value, _Float):
        raise BadLine("id", key, shown(str(value)), "want a text, or a whole number, which is taken as its digits")
    return str(value)


def _json_time(found: dict[str, Any], key: str) -> int:
    value = _value(found, key)
    if not isinstance(value, str):
        raise BadLine("time", key, shown(str(value)), "want an integer of at most 18 digits")
    return parse_time(value, key)
