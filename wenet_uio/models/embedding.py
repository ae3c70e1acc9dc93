"""Position encodings. Each returns the scaled input and the encodings of its positions."""

from __future__ import annotations

import math

import torch
from torch import nn

TABLE_LENGTH = 5000
"""Positions in the table that checkpoints contain, as in WeNet; encodings beyond it are computed when needed."""


def sinusoids(start: int, size: int, dim: int, device: torch.device) -> torch.Tensor:
    """(1, size, dim) encodings of positions start .. start + size - 1: even channels are sines, odd ones cosines."""
    position = torch.arange(start, start + size, dtype=torch.float32, device=device).unsqueeze(1)
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32, device=device) * -(math.log(10000.0) / dim))
    angle = position * rate
    return torch.stack((angle.sin(), angle.cos()), dim=2).reshape(1, size, dim)


class NoPositionalEncoding(nn.Module):
    """Returns the input unscaled; the position encodings are zeros."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = nn.Dropout(dropout_rate)

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """(1, size, dim) encodings of positions from `offset`, with dtype and device of `like`."""
        return torch.zeros(1, size, self.dim, dtype=like.dtype, device=like.device)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Input x (B, T, dim) at `positions` (1 or B, T, dim) -> x."""
        return x

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Input x (B, T, dim) -> x, encodings (1, T, dim)."""
        return self.dropout(x), self.position_encoding(offset, x.size(1), x)


class RelPositionalEncoding(nn.Module):
    """Scales the input; the attention uses the encodings (Transformer-XL without its shift)."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__()
        self.dim = dim
        self.scale = math.sqrt(dim)
        self.dropout = nn.Dropout(dropout_rate)
        self.pe: torch.Tensor
        self.register_buffer("pe", sinusoids(0, TABLE_LENGTH, dim, torch.device("cpu")))

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """(1, size, dim) encodings of positions from `offset`, with dtype and device of `like`.

        `offset` is negative at the start of a stream if the cache has a fixed size.
        """
        if offset >= 0 and offset + size <= self.pe.size(1):
            return self.pe[:, offset : offset + size].to(like.dtype)
        return sinusoids(offset, size, self.dim, like.device).to(like.dtype)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Input x (B, T, dim) at `positions` (1 or B, T, dim) -> x scaled."""
        return x * self.scale

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Input x (B, T, dim) -> what `place` makes of it, encodings (1, T, dim)."""
        positions = self.position_encoding(offset, x.size(1), x)
        return self.dropout(self.place(x, positions)), self.dropout(positions)


class PositionalEncoding(RelPositionalEncoding):
    """Scales the input and adds the encodings to it (Vaswani et al. 2017, section 3.5)."""

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Input x (B, T, dim) at `positions` (1 or B, T, dim) -> x scaled plus encodings."""
        return x * self.scale + positions


PositionEncoding = NoPositionalEncoding | RelPositionalEncoding
POSITION_ENCODINGS: dict[str, type[NoPositionalEncoding] | type[RelPositionalEncoding]] = {
    "abs_pos": PositionalEncoding,
    "rel_pos": RelPositionalEncoding,
    "no_pos": NoPositionalEncoding,
}
