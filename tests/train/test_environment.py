from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from wenet_uio.dataset.chain.compiled import Compiled, compiled
from wenet_uio.train import environment
from wenet_uio.train.distributed import World


def test_the_feature_kernel_names_the_functions_and_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processor = Path("/proc/cpuinfo").read_text()
    kind, _, name = environment.feature_kernel().partition(", ")
    assert kind == compiled().kind
    assert name in processor
    monkeypatch.setattr(environment, "compiled", lambda: Compiled(None, "no compiler"))
    assert environment.feature_kernel() == f"torch and numpy, {name}"


def test_a_package_that_is_not_installed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-package"))
    noted = environment.describe_start(World(torch.device("cpu")), 1)
    assert noted["torch"] == version("torch")
    assert noted["no-such-package"] == "not installed"
