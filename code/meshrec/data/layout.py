"""The columns that a text is said to have, and the refusal, by its first lines, of a text that has others."""

import re
from dataclasses import dataclass

from meshrec.data.columns import DataError
from meshrec.experiment.schema import CATEGORICAL_FEATURES, DENSE_FEATURES, CriteoDataset

FEATURES = DENSE_FEATURES + CATEGORICAL_FEATURES
SNIFFED_BYTES = 64 << 10
"""Part of the text that the layout is judged by."""
SNIFFED_LINES = 20
BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
NAMES_OF_SEPARATORS = {b"\t": "tabs", b",": "commas"}
LABEL_NAMES = re.compile(r"label|click|clicked|target|y|is_click")
INTEGER_NAMES = re.compile(r"(?:i|int|int_|integer_|dense_|i_|integer_feature_)(\d+)")
CATEGORY_NAMES = re.compile(r"(?:c|cat|cat_|categorical_|sparse_|c_|categorical_feature_)(\d+)")


class CriteoError(DataError):
    """Rows that can't be read as Criteo's. The message names the file and says what to do."""


@dataclass(frozen=True)
class Layout:
    """Columns of a text and what is tolerated in them."""

    separator: bytes = b"\t"
    header: bool = False
    index: bool = False
    """A first column that is left out."""
    labelled: bool = True
    floats: bool = False
    """Integers may be written as `5.0`."""
    pad: bool = False
    """Rows may lack empty categories at their end."""

    @classmethod
    def of(cls, dataset: CriteoDataset) -> "Layout":
        """What the data set's settings declare."""
        text = dataset.text
        separator = {"tab": b"\t", "comma": b","}[text.separator]
        return cls(separator, text.header, text.index_column, dataset.labelled, text.float_integers, text.pad_missing_tail)

    @property
    def columns(self) -> int:
        """Fields of a whole row."""
        return self.index + self.labelled + FEATURES

    @property
    def parameters(self) -> tuple[int, int, int, int, int]:
        """For compiled code: separator's byte, and 0 or 1 for index, labelled, floats and pad."""
        return self.separator[0], int(self.index), int(self.labelled), int(self.floats), int(self.pad)

    @property
    def wanted(self) -> str:
        """The layout in words."""
        fields = ["an index"] * self.index + ["label"] * self.labelled
        listed = ", ".join([*fields, f"{DENSE_FEATURES} integers", f"{CATEGORICAL_FEATURES} hexadecimal categories"])
        separated = {b"\t": "tab", b",": "comma"}[self.separator]
        return f"{'a header line, then ' * self.header}{self.columns} {separated}-separated fields: {listed}"


def refuse_other_layouts(name: str, head: bytes, layout: Layout) -> None:
    """Look at the first lines of the text. One odd line among them is a bad row, not another layout.

    Raises:
        CriteoError: byte-order mark, an archive, another separator, an undeclared header, index column or lack of labels, or
            what was declared isn't there.
    """
    if head.startswith(BYTE_ORDER_MARKS):
        raise CriteoError(f"{name}: line 1: starts with a byte-order mark; save the text as plain ASCII without one")
    if head[257:262] == b"ustar":
        raise CriteoError(f"{name}: is a tar archive; unpack it (tar -xf) and give the text in it")
    whole = head if len(head) < SNIFFED_BYTES else head[: head.rfind(b"\n") + 1]
    lines = [line.rstrip(b"\r") for line in whole.split(b"\n")[:SNIFFED_LINES] if line.strip()]
    found = list(_differences(lines, layout)) if lines else []
    if found:
        raise CriteoError(f"{name}: line 1: found {'; '.join(found)}. Want {layout.wanted}")


def _differences(lines: list[bytes], layout: Layout) -> list[str]:
    found = []
    separator = _separator(lines[0], layout)
    if separator != layout.separator:
        declared = {b",": "comma", b"\t": "tab"}[separator]
        found.append(f"fields separated by {NAMES_OF_SEPARATORS[separator]} (declare text.separator: {declared})")
    table = [line.split(separator) for line in lines]
    header = is_header(table[0])
    if header and not layout.header:
        found.append("a header line (declare text.header: true)")
    if layout.header:
        found += _header_problems(table[0], header, layout)
    body = table[1:] if header and len(table) > 1 else table
    return found + _column_problems(body, layout)


def _separator(line: bytes, layout: Layout) -> bytes:
    """The declared separator, unless the line clearly has the other one."""
    other = b"," if layout.separator == b"\t" else b"\t"
    return other if layout.separator not in line and line.count(other) >= FEATURES - 1 else layout.separator


def is_header(fields: list[bytes]) -> bool:
    """Whether a line names its columns: words at the start and no integer anywhere."""
    words = len(fields) >= FEATURES and any(re.search(rb"[A-Za-z]", field) for field in fields[:2])
    return words and not any(re.fullmatch(rb"-?\d+(\.0*)?", field) for field in fields)


def _header_problems(names: list[bytes], header: bool, layout: Layout) -> list[str]:
    if not header:
        return ["no header line, though text.header is declared"]
    if len(names) != layout.columns:
        return []  # said of all the lines below
    problem = names_in_order([name.decode("latin-1").strip().strip('"') for name in names], layout)
    return [problem] if problem else []


def names_in_order(names: list[str], layout: Layout) -> str | None:
    """What is wrong with the names of the columns, else None: others' order would be read with the columns exchanged."""
    if len(names) != layout.columns:
        hint = "; is the first an index? (declare text.index_column: true)" if len(names) == layout.columns + 1 else ""
        return f"{len(names)} columns{hint}"
    named = [name.lower() for name in names[layout.index :]]
    if layout.labelled and not LABEL_NAMES.fullmatch(named[0]):
        return f"a label column named {named[0]!r} (want label; or is it an index, or the label elsewhere?)"
    before = layout.index + layout.labelled
    dense, sparse = named[layout.labelled :][:DENSE_FEATURES], named[layout.labelled :][DENSE_FEATURES:]
    return _misnamed(dense, INTEGER_NAMES, "I", before) or _misnamed(sparse, CATEGORY_NAMES, "C", before + DENSE_FEATURES)


def _misnamed(names: list[str], pattern: re.Pattern[str], letter: str, before: int) -> str | None:
    """The first name that isn't the pattern with the next number; numbers start at 0 or 1."""
    numbers = [int(match[1]) if (match := pattern.fullmatch(name)) else None for name in names]
    base = 0 if numbers[0] == 0 else 1
    for place, number in enumerate(numbers):
        if number != place + base:
            wanted = f"{letter}{place + 1} (put the columns into Criteo's order)"
            return f"column {before + place + 1} named {names[place]!r}, want {wanted}"
    return None


def _column_problems(table: list[list[bytes]], layout: Layout) -> list[str]:
    """What the number of columns says, where all lines agree."""
    numbers = {len(fields) for fields in table}
    if len(numbers) != 1 or (number := numbers.pop()) == layout.columns:
        return []
    if number == layout.columns + 1 and not layout.labelled and all(fields[layout.index] in (b"0", b"1") for fields in table):
        return [f"{number} columns; are the rows labelled? (remove labelled: false)"]
    if number == layout.columns + 1 and not layout.index:
        return [f"{number} columns; is the first an index? (declare text.index_column: true)"]
    if number == layout.columns - 1:
        first = layout.index + layout.labelled + DENSE_FEATURES - 1
        if layout.labelled and all(re.fullmatch(rb"[0-9A-Fa-f]{8}", fields[first]) for fields in table):
            return [
                f"{number} columns that look unlabelled (hex in column {first + 1}); only labelled rows can be trained on "
                "(declare labelled: false to prepare rows that are only predicted)"
            ]
        if layout.index:
            return [f"{number} columns: no index column, though text.index_column is declared"]
    return []
