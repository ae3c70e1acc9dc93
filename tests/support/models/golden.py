"""Comparison with outputs of WeNet."""

from __future__ import annotations

import torch


def assert_close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    """Compare two tensors with the same absolute and relative tolerance."""
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
