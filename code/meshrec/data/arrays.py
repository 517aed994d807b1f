"""Arrays on disk that grow by rows, as `.npy` files: neither their length nor the memory has to be known beforehand."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class GrowingArray:
    """One `.npy` file that rows are appended to. Its header says 0 rows until `complete` writes the real number."""

    def __init__(self, file: Path, dtype: str, row_shape: tuple[int, ...], rows: int | None = None) -> None:
        """Start the file anew, or go on after the first `rows` of one that is there.

        Raises:
            OSError: there is no such file or it is too short.
        """
        self.path = file
        self.dtype = np.dtype(dtype)
        self.row_shape = row_shape
        self.rows = rows or 0
        self._file = file.open("wb" if rows is None else "r+b")
        if rows is None:
            self._write_header(0)
            self._start = self._file.tell()
        else:
            self._start = self._after_header()
            self._file.truncate(self._start + rows * self._row_bytes)
            self._file.seek(0, os.SEEK_END)

    @property
    def _row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.row_shape, dtype=np.int64))

    def append(self, values: NDArray[Any]) -> None:
        """Add rows [k, …].

        Raises:
            ValueError: another dtype or shape.
        """
        wanted = (len(values), *self.row_shape)
        if values.dtype != self.dtype or values.shape != wanted:
            raise ValueError(f"{self.path.stem}: found {values.dtype} {values.shape}, want {self.dtype.str} {wanted}")
        self._file.write(np.ascontiguousarray(values).data)
        self.rows += len(values)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start … stop − 1, read and not mapped: memory is theirs alone."""
        self._file.flush()
        count = max(0, min(stop, self.rows) - start)
        values = np.fromfile(
            self.path, self.dtype, count * self._row_bytes // self.dtype.itemsize, offset=self._start + start * self._row_bytes
        )
        return values.reshape(count, *self.row_shape)

    def sync(self) -> None:
        """See to it that all rows are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def complete(self) -> None:
        """Write the final number of rows into the header, and the file to disk."""
        self._file.seek(0)
        self._write_header(self.rows)
        self.sync()

    def close(self) -> None:
        """Close the file; what was appended stays in it."""
        self._file.close()

    def _write_header(self, rows: int) -> None:
        # NumPy pads the header so that the first axis can grow in place: its length is the same for every number of rows
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (rows, *self.row_shape)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def _after_header(self) -> int:
        try:
            np.lib.format.read_magic(self._file)
            np.lib.format.read_array_header_1_0(self._file)
        except ValueError as error:
            raise OSError(f"{self.path}: {error}") from None
        start = self._file.tell()
        if os.fstat(self._file.fileno()).st_size < start + self.rows * self._row_bytes:
            raise OSError(f"{self.path}: is shorter than {self.rows} rows")
        return start
