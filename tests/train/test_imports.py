"""Packages that training imports."""

from __future__ import annotations

from pathlib import Path

from tests.support.edited_package import edited_package, run_with

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


def test_a_conformer_trains_without_torchaudio(tmp_path: Path) -> None:
    run_with(edited_package(tmp_path, {}), WITHOUT_TORCHAUDIO)  # a copy is imported anew
