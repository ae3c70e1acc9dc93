from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def corpus(tmp_path: Path, make_utterances: Callable) -> Path:
    """Folder with wav/utt0000.wav to utt0003.wav."""
    make_utterances(4)
    return tmp_path
