"""Failures that a command expects: what the same command continues, full shared
memory, an add-on that was taken away.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

AGAIN = os.EX_TEMPFAIL
"""Exit status 75: the same command continues if it is started again."""
SHARED_MEMORY = "/dev/shm"
"""File system through which processes share memory and semaphores."""
NO_SHARED_MEMORY = (
    f"{SHARED_MEMORY} is full, through which worker processes hand over their results: make it "
    "larger (docker run --shm-size 8g, or --ipc host), or use fewer workers, a lower --prefetch or "
    "smaller batches"
)
WITHOUT_IT = "this installation was made without it"
"""Why an add-on that is asked for is not there."""


class StartAgainError(ValueError):
    """An expected failure that does not occur again if the same command is started again."""


def is_shared_memory_full(needed: int = 1 << 16) -> bool:
    """Tell whether less than `needed` bytes are free in the file system of shared memory."""
    return Path(SHARED_MEMORY).is_dir() and shutil.disk_usage(SHARED_MEMORY).free < needed


def lacks_add_on(error: ModuleNotFoundError) -> bool:
    """Tell whether the missing module is an add-on, which was taken away."""
    return (error.name or "").startswith("wenet_uio.addons.")
