"""The memory of a process, for tests of what glibc's allocator keeps and returns."""

import ctypes
import os
from pathlib import Path

import pytest

needs_glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc"
)


def resident(process: int | str = "self") -> int:
    """Return the bytes in memory of a process, without those of mapped files."""
    _, all_pages, of_files, *_ = map(int, Path(f"/proc/{process}/statm").read_text().split())
    return (all_pages - of_files) * os.sysconf("SC_PAGE_SIZE")
