"""Arrays and tensors as bytes of files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch


def npy(array: np.ndarray) -> bytes:
    """The bytes of a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def pth(value: Any) -> bytes:
    """The bytes of a file of `torch.save`."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()
