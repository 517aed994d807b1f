"""Parquet files of Criteo rows, rendered as text: they pass the same checks, row by row, as text does."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from meshrec.data.layout import CriteoError, Layout, names_in_order
from meshrec.experiment.schema import DENSE_FEATURES

BATCH_ROWS = 16_384


class ParquetText:
    """Reads a file's rows as lines of the layout, one a row; its header is the column names, which are checked here.

    Raises:
        CriteoError: damaged, or its columns are others; the message names the column.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        self._layout = layout
        self._rest = b""
        try:
            self._file = pyarrow.parquet.ParquetFile(path, memory_map=False, buffer_size=1 << 20)
        except (pa.ArrowException, OSError) as error:
            raise CriteoError(f"{path}: is no readable Parquet file: {error}; fetch it again") from None
        self._check(self._file.schema_arrow)
        self._batches = self._rendered()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer, or its start at the end of the text; returns how many bytes that are.

        Raises:
            OSError: the file is damaged.
        """
        try:
            while len(self._rest) < len(buffer) and (more := next(self._batches, b"")):
                self._rest += more
        except pa.ArrowException as error:
            raise OSError(str(error)) from None
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def _check(self, schema: Any) -> None:
        """Names and types of all columns, before a row is read."""
        if problem := names_in_order(schema.names, self._layout):
            raise CriteoError(f"{self._path}: found {problem}. Want the columns {self._layout.wanted}")
        first = self._layout.index + self._layout.labelled
        for column, field in enumerate(schema):
            if column < self._layout.index:
                continue
            if problem := _wrong_type(field.type, column - first, self._layout.floats):
                raise CriteoError(f"{self._path}: column {field.name!r} is {field.type}, want {problem}")

    def _rendered(self) -> Iterator[bytes]:
        options = pyarrow.csv.WriteOptions(
            include_header=False, delimiter=self._layout.separator.decode(), quoting_style="none"
        )
        for batch in self._file.iter_batches(BATCH_ROWS):
            out = pa.BufferOutputStream()
            try:
                pyarrow.csv.write_csv(
                    pa.record_batch([_plain(c) for c in batch.columns], names=batch.schema.names), out, options
                )
            except pa.ArrowInvalid as error:  # a text that holds a separator, a quote or a line end
                raise CriteoError(f"{self._path}: a value can't be part of a row: {error}") from None
            yield out.getvalue().to_pybytes()


def _wrong_type(found: Any, feature: int, floats: bool) -> str | None:
    """What a column should be, where it is something else. Feature −1 is the label."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    text = pa.types.is_string(found) or pa.types.is_large_string(found)
    if feature >= DENSE_FEATURES:
        return None if text else "text of 8 hexadecimal digits (a number doesn't say how it was made from them)"
    if pa.types.is_integer(found) or text or (feature < 0 and pa.types.is_boolean(found)):
        return None
    if feature >= 0 and pa.types.is_floating(found):
        return None if floats else "integers (declare text.float_integers: true if they are whole numbers)"
    return "0 or 1" if feature < 0 else "integers"


def _plain(column: Any) -> Any:
    """A column as the parser knows it: booleans as 0 and 1, whole floats as integers.

    A float that is no number is missing: pandas has no other way to say so.
    """
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        return pc.cast(column, pa.int8())
    if pa.types.is_floating(column.type):
        numbers = pc.cast(column, pa.float64())
        numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
        try:
            return pc.cast(numbers, pa.int64())
        except pa.ArrowInvalid:  # some aren't whole: the parser rejects their rows
            return numbers
    return column
