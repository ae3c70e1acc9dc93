"""Packages that training imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT_TORCHAUDIO = """
import sys
sys.modules["torchaudio"] = None  # an import of it fails
import wenet_uio.bin.train
from tests.support.train.tiny import CPU, small_config, tiny_batch
from wenet_uio.models import build_model
from wenet_uio.search.ctc_path import ctc_greedy_search
from wenet_uio.train.engines import DdpEngine
config = small_config()
engine = DdpEngine(build_model(config), config, CPU, seed=1)
engine.connect()
assert engine.step([tiny_batch([90, 50], 1)], 1, {}).applied
"""


def test_a_conformer_trains_without_torchaudio() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCHAUDIO], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
