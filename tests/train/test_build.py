from __future__ import annotations

from pathlib import Path

import pytest

import wenet_uio.train
from tests.support.train.tiny import tiny_config
from wenet_uio.train.build import DEEPSPEED_CONFIG
from wenet_uio.train.engine_deepspeed import read_settings

ROOT = Path(__file__).parents[2]


def test_the_config_of_deepspeed_is_part_of_the_package() -> None:
    assert read_settings(DEEPSPEED_CONFIG, tiny_config(grad_clip=3.0))["gradient_clipping"] == 3.0
    assert DEEPSPEED_CONFIG.parent == Path(wenet_uio.train.__file__).parent
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert DEEPSPEED_CONFIG.name in project["tool"]["setuptools"]["package-data"]["wenet_uio.train"]
