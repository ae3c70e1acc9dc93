"""Folders that take long to make, such as a trained model: the processes of a run of pytest share
them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wenet_uio.base.files import locked


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name; the first process that asks for it makes it.

    Args:
        factory: pytest's `tmp_path_factory`.
        name: says what is in the folder, as another folder needs another name.
        make: writes into a folder that does not exist yet. The folder is renamed afterwards.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / name
    with locked(root / f"{name}.lock"):
        if not folder.exists():
            unfinished = root / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder
