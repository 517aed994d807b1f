"""glibc's allocator, told to keep freed memory within a run and to return it between runs.

By default glibc maps blocks of a few megabytes anew for every tensor until it has learned their size, and each mapping is paid
for in page faults: the first run of a process is then a third slower than the following ones.
"""

import ctypes
import gc

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Serve all tensors from the heap and keep what is freed. Returns whether the C library is glibc, which can."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    return bool(library.mallopt(_M_MMAP_THRESHOLD, 2**30) and library.mallopt(_M_TRIM_THRESHOLD, _LARGEST))


def return_freed_memory() -> None:
    """Give freed memory back to the system, so that the next run's peak is its own."""
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
