"""A minute of faults of `tests/soak.sh`: a run with a fault every few seconds ends as a quiet run."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.all
def test_a_run_with_a_fault_every_few_seconds_ends_as_a_quiet_run():
    command = ["bash", ROOT / "tests/soak.sh", "1", "--every", "4", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 3: as a quiet run" in done.stdout
    [faults] = re.findall(r"^(\d+) faults", done.stdout, re.MULTILINE)
    assert int(faults) > 0
