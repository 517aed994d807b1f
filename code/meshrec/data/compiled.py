"""Loops compiled by numba."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at the first call, free of the interpreter's lock; kept on disk where there is a folder that can be written.

    Args:
        function: of numbers and NumPy arrays.
        options: numba's, as `fastmath`.
    """
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no cache folder, as in a read-only installation
        return numba.njit(nogil=True, **options)(function)  # type: ignore[no-any-return]
