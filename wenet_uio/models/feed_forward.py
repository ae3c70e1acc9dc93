"""Position-wise feed-forward module."""

from __future__ import annotations

import torch
from torch import nn


class PositionwiseFeedForward(nn.Module):
    """Linear layer to `hidden` channels, activation, linear layer back to `dim`; the same for every frame."""

    def __init__(self, dim: int, hidden: int, dropout_rate: float, activation: nn.Module) -> None:
        super().__init__()
        self.w_1 = nn.Linear(dim, hidden)
        self.activation = activation
        self.dropout = nn.Dropout(dropout_rate)
        self.w_2 = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        return self.w_2(self.dropout(self.activation(self.w_1(x))))
