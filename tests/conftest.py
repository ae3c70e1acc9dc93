"""Fixtures that find the shared corpora; tests that need them skip, saying why, where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value)


@pytest.fixture
def corpora() -> Path:
    """Folder of small real corpora (fsdd, yesno, ...)."""
    return _folder("WENET_UIO_CORPORA")


@pytest.fixture
def golden() -> Path:
    """Folder of WeNet models with the outputs WeNet computes from them."""
    return _folder("WENET_UIO_GOLDEN")
