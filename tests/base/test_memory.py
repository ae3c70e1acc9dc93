import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.process_memory import needs_glibc, resident
from wenet_uio.base.memory import (
    M_MMAP_THRESHOLD,
    M_TRIM_THRESHOLD,
    keep_freed_memory,
    return_freed_memory,
)

pytestmark = needs_glibc
FEW = 10
THIRD_TURN = """
import resource, sys
from wenet_uio.base.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "keep":
    keep_freed_memory()
for turn in range(3):
    before = faults()
    bytearray(100_000_000)
print(faults() - before)
"""


def pages_cleared(argument, variables=()):
    """Pages that the system clears for 100 MB of memory of which the process has freed as much."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), **dict(variables)}
    return int(
        subprocess.check_output([sys.executable, "-c", THIRD_TURN, argument], env=environment)
    )


def test_kept_memory_is_not_cleared_again():
    assert pages_cleared("keep") < FEW < pages_cleared("default")


@pytest.mark.parametrize(
    "variables",
    [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1000000"}],
)
def test_the_variables_of_glibc_come_first(variables):
    assert pages_cleared("keep", variables) > FEW


@pytest.mark.parametrize(
    ("most", "calls"),
    [
        (1 << 40, ["mmap 1073741824", "trim -1"]),
        (1 << 25, ["mmap 1073741824", "mmap 33554432", "trim -1"]),
        (0, ["mmap 1073741824", "mmap 33554432"]),
    ],
)
def test_memory_is_kept_also_where_glibc_refuses_the_largest_blocks(monkeypatch, most, calls):
    """Older versions refuse more than 32 MB; the second parameter alone would slow training."""
    names = {M_MMAP_THRESHOLD: "mmap", M_TRIM_THRESHOLD: "trim"}
    made = []

    def mallopt(parameter, value):
        made.append(f"{names[parameter]} {value}")
        return int(value <= most)

    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    keep_freed_memory({})
    assert made == calls


def test_freed_memory_goes_back_to_the_system():
    pieces = [bytearray(50_000) for _ in range(2000)]
    kept = pieces[-1]  # above all others, so that freeing them alone returns nothing
    before = resident()
    del pieces
    return_freed_memory()
    assert before - resident() > 50_000_000
    assert len(kept) == 50_000
