"""Memory of this machine: what the C allocator does with freed memory, and full shared memory.

The functions for the allocator need glibc; with another C library they do nothing.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
NEVER = -1
LARGEST_KEPT = (1 << 30, 1 << 25)
"""Bytes of the largest block that `keep_freed_memory` keeps; older versions of glibc refuse the first."""
SHARED_MEMORY = "/dev/shm"
"""File system through which processes share memory and semaphores."""
NO_SHARED_MEMORY = (
    f"{SHARED_MEMORY} is full, through which worker processes hand over their results: make it "
    "larger (docker run --shm-size 8g, or --ipc host), or use fewer workers, a lower --prefetch or "
    "smaller batches"
)


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> None:
    """Let this process keep the memory that it frees, for its next training step.

    Without this, glibc returns the memory of a step to the system, which clears every page of it
    for the next step. The variables of glibc come first: if one of them (MALLOC_…, GLIBC_TUNABLES)
    sets the allocator, nothing changes.
    """
    tunables = environment.get("GLIBC_TUNABLES", "")
    chosen = "malloc" in tunables or any(name.startswith("MALLOC_") for name in environment)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)

    if mallopt is None or chosen:
        return

    # The second parameter alone would return every block of 128 kB at once
    if any(mallopt(M_MMAP_THRESHOLD, size) for size in LARGEST_KEPT):
        mallopt(M_TRIM_THRESHOLD, NEVER)


def return_freed_memory() -> None:
    """Return freed memory to the operating system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def is_shared_memory_full(needed: int = 1 << 16) -> bool:
    """Tell whether less than `needed` bytes are free in the file system of shared memory."""
    return Path(SHARED_MEMORY).is_dir() and shutil.disk_usage(SHARED_MEMORY).free < needed
