"""The lowest versions that the requirements allow, in an environment of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.mark.all
@pytest.mark.timeout(3000)  # it installs packages, and then runs thousands of tests
def test_what_reads_bytes_of_strangers_works_with_the_lowest_versions():
    script = Path(__file__).with_name("lowest.sh")
    ran = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
