from __future__ import annotations

from importlib.metadata import version

import pytest
import torch

from wenet_uio.train import environment
from wenet_uio.train.distributed import World


def test_a_package_that_is_not_installed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-package"))
    noted = environment.describe_start(World(torch.device("cpu")), 1)
    assert noted["torch"] == version("torch")
    assert noted["no-such-package"] == "not installed"
