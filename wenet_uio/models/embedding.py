"""Position encodings. Each returns the scaled input and the encodings of its positions."""

from __future__ import annotations

import math

import torch
from torch import nn

from wenet_uio.config.encoder import EncoderConf
from wenet_uio.models.dropout import Dropout

TABLE_LENGTH = 5000
"""Positions in the table that checkpoints contain, as in WeNet; encodings beyond it are computed
when needed."""

ROTARY_TABLE_LENGTH = 3000
"""The same for rotary positions."""

WHISPER_TABLE_LENGTH = 1500
"""The same for the encoder of Whisper: 30 s."""

LEARNED_POSITIONS = 448
"""Positions of a decoder with learned encodings, as in Whisper; there are no others."""


def sinusoids(start: int, size: int, dim: int, device: torch.device) -> torch.Tensor:
    """Return (1, size, dim) encodings of positions start .. start + size - 1: even channels are
    sines, odd ones cosines.
    """
    position = torch.arange(start, start + size, dtype=torch.float32, device=device).unsqueeze(1)
    channel = torch.arange(0, dim, 2, dtype=torch.float32, device=device)
    rate = torch.exp(channel * -(math.log(10000.0) / dim))
    angle = position * rate  # (size, dim / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=2).reshape(1, size, dim)


def whisper_sinusoids(start: int, size: int, dim: int, device: torch.device) -> torch.Tensor:
    """Return (1, size, dim) encodings as in Whisper: the first half of the channels are sines, the
    second half cosines.
    """
    position = torch.arange(start, start + size, dtype=torch.float32, device=device).unsqueeze(1)
    channel = torch.arange(dim // 2, dtype=torch.float32, device=device)
    angle = position * torch.exp(channel * -(math.log(10000.0) / max(dim // 2 - 1, 1)))
    return torch.cat((angle.sin(), angle.cos()), dim=1).unsqueeze(0)


def rotations(start: int, size: int, head_dim: int, device: torch.device) -> torch.Tensor:
    """Return cosines and sines (1, size, head_dim / 2, 2) of the angles of positions start .. start
    + size - 1.
    """
    position = torch.arange(start, start + size, dtype=torch.float32, device=device).unsqueeze(1)
    channel = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device)
    rate = 1.0 / 10000.0 ** (channel / head_dim)
    angle = position * rate  # (size, head_dim / 2)
    return torch.stack((angle.cos(), angle.sin()), dim=2).unsqueeze(0)


class NoPositionalEncoding(nn.Module):
    """Returns the input unscaled; the position encodings are zeros."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout_rate)

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, size, dim) encodings of positions from `offset`, with dtype and device of
        `like`.
        """
        return torch.zeros(1, size, self.dim, dtype=like.dtype, device=like.device)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return x (B, T, dim) as it is; `positions` are (1 or B, T, dim)."""
        return x

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x (B, T, dim) and encodings (1, T, dim)."""
        return self.dropout(x), self.position_encoding(offset, x.size(1), x)


class RelPositionalEncoding(nn.Module):
    """Scales the input; the attention uses the encodings (Transformer-XL without its shift)."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__()
        self.dim = dim
        self.scale = math.sqrt(dim)
        self.dropout = Dropout(dropout_rate)
        self.pe: torch.Tensor
        self.register_buffer("pe", sinusoids(0, TABLE_LENGTH, dim, torch.device("cpu")))

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, size, dim) encodings of positions from `offset`, with dtype and device of
        `like`.

        `offset` is negative at the start of a stream if the cache has a fixed size.
        """
        if offset >= 0 and offset + size <= self.pe.size(1):
            return self.pe[:, offset : offset + size].to(like.dtype)
        return sinusoids(offset, size, self.dim, like.device).to(like.dtype)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Scale x (B, T, dim); `positions` are (1 or B, T, dim)."""
        return x * self.scale

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what `place` makes of x (B, T, dim), and encodings (1, T, dim)."""
        positions = self.position_encoding(offset, x.size(1), x)
        return self.dropout(self.place(x, positions)), self.dropout(positions)


class PositionalEncoding(RelPositionalEncoding):
    """Scales the input and adds the encodings to it (Vaswani et al. 2017, section 3.5)."""

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Scale x (B, T, dim), and add the encodings `positions` (1 or B, T, dim)."""
        return x * self.scale + positions


class WhisperPositionalEncoding(RelPositionalEncoding):
    """Adds the encodings to the unscaled input (Radford et al. 2022)."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__(dim, dropout_rate)
        self.register_buffer(
            "pe", whisper_sinusoids(0, WHISPER_TABLE_LENGTH, dim, torch.device("cpu"))
        )

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, size, dim) encodings of positions from `offset`, with dtype and device of
        `like`.

        Positions of the table are those of the table in longer input, too: published tables are
        rounded.
        """
        known = self.pe[:, offset : offset + size] if offset >= 0 else self.pe[:, :0]
        if known.size(1) == size:
            return known.to(like.dtype)

        beyond_table = whisper_sinusoids(offset, size, self.dim, like.device)[:, known.size(1) :]
        return torch.cat((known, beyond_table), dim=1).to(like.dtype)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Add the encodings `positions` (1 or B, T, dim) to x (B, T, dim)."""
        return x + positions


class LearnedPositionalEncoding(nn.Module):
    """Adds learned encodings of positions to the unscaled input."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__()
        self.pe = nn.Parameter(torch.zeros(1, LEARNED_POSITIONS, dim))
        self.dropout = Dropout(dropout_rate)

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the encodings of positions from `offset` to x (B, U, dim); return them (1, U, dim)
        too.

        Raises:
            ValueError: a position has no encoding.
        """
        end = offset + x.size(1)
        if end > self.pe.size(1):
            raise ValueError(
                f"{end} tokens with the prompt, but the decoder has {self.pe.size(1)} positions: "
                "lower dataset_conf.filter_conf.token_max_length to 440"
            )

        positions = self.pe[:, offset:end].to(x.dtype)
        return self.dropout(x + positions), self.dropout(positions)


class FireredPositionalEncoding(RelPositionalEncoding):
    """Encodings of the distances between any two frames; the input is not scaled."""

    def __init__(self, dim: int, dropout_rate: float) -> None:
        super().__init__(dim, dropout_rate)
        self.pe = self.distances(TABLE_LENGTH, torch.device("cpu"))

    def distances(self, size: int, device: torch.device) -> torch.Tensor:
        """Return (1, 2 size - 1, dim) encodings of the distances size - 1 .. 1 - size."""
        return sinusoids(1 - size, 2 * size - 1, self.dim, device).flip(1)

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, 2 size - 1, dim) encodings of the distances size - 1 .. 1 - size, with dtype
        and device of `like`.
        """
        first = self.pe.size(1) // 2 + 1 - size
        if first >= 0 and self.pe.size(1) > 0:
            return self.pe[:, first : first + 2 * size - 1].to(like.dtype)
        return self.distances(size, like.device).to(like.dtype)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return x (B, T, dim) as it is."""
        return x


class RotaryPositionalEncoding(nn.Module):
    """Scales the input; RotaryMultiHeadedAttention uses the angles."""

    def __init__(self, dim: int, dropout_rate: float, head_dim: int) -> None:
        super().__init__()
        self.scale = math.sqrt(dim)
        self.head_dim = head_dim
        self.dropout = Dropout(dropout_rate)
        self.pe: torch.Tensor
        self.register_buffer("pe", rotations(0, ROTARY_TABLE_LENGTH, head_dim, torch.device("cpu")))

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, size, head_dim / 2, 2) cosines and sines of positions from `offset`, with
        dtype and device of `like`.
        """
        if offset >= 0 and offset + size <= self.pe.size(1):
            return self.pe[:, offset : offset + size].to(like.dtype)
        return rotations(offset, size, self.head_dim, like.device).to(like.dtype)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Scale x (B, T, dim)."""
        return x * self.scale

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale x (B, T, dim); return cosines and sines (1, T, head_dim / 2, 2) too."""
        positions = self.position_encoding(offset, x.size(1), x)
        return self.dropout(self.place(x, positions)), positions


PositionEncoding = NoPositionalEncoding | RelPositionalEncoding | RotaryPositionalEncoding
POSITION_ENCODINGS: dict[str, type[NoPositionalEncoding] | type[RelPositionalEncoding]] = {
    "abs_pos": PositionalEncoding,
    "rel_pos": RelPositionalEncoding,
    "no_pos": NoPositionalEncoding,
    "rel_pos_firered": FireredPositionalEncoding,
    "abs_pos_whisper": WhisperPositionalEncoding,
}


def build_position_encoding(conf: EncoderConf) -> PositionEncoding:
    """Build the position encoding `conf.pos_enc_layer_type`."""
    if conf.pos_enc_layer_type == "rope_pos":
        head_dim = conf.head_dim or conf.output_size // conf.attention_heads
        return RotaryPositionalEncoding(conf.output_size, conf.positional_dropout_rate, head_dim)
    return POSITION_ENCODINGS[conf.pos_enc_layer_type](
        conf.output_size, conf.positional_dropout_rate
    )
