"""Encoders with self-attention and memory (SANM, Gao et al. 2020), and the stacked features that
they take.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.addons.encoders.sanm.conf import SanmEncoderConf, SanmEncoderWithTpConf
from wenet_uio.config.encoder import MemoryConf
from wenet_uio.models.ctc import Intermediate
from wenet_uio.models.dropout import Dropout, attended
from wenet_uio.models.embedding import TABLE_LENGTH, RelPositionalEncoding
from wenet_uio.models.encoder_traits import traits_of
from wenet_uio.models.layer_parts import build_feed_forward
from wenet_uio.models.layered_encoder import LayeredEncoder, run_layer
from wenet_uio.models.subsampling import Subsampling

STACKED, SHIFT = 7, 6
"""A frame of low rate is STACKED feature frames side by side; the next one begins SHIFT feature
frames later."""


def low_frame_rate(feats: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack feature frames, as FunASR and WeNet do (LFR): frame t has the feature frames 6 t - 3 to
    6 t + 3.

    The first and the last feature frame of an utterance stand for frames before and after it.

    Args:
        feats: (B, T, F), padded.
        lengths: (B,) feature frames.

    Returns:
        Frames (B, T', 7 F) with T' = ceil(T / 6), at least 1, and lengths (B,).
    """
    if feats.size(1) == 0:
        feats = pad(feats, (0, 0, 0, 1))

    # Feature frames of each frame of low rate: (T', 7), then (B, T' * 7) within each utterance.
    first = torch.arange(0, feats.size(1), SHIFT, device=feats.device) - STACKED // 2
    places = first.unsqueeze(1) + torch.arange(STACKED, device=feats.device)
    places = places.flatten().unsqueeze(0)
    places = torch.minimum(places, (lengths.unsqueeze(1) - 1)).clamp(min=0)
    stacked = feats.gather(1, places.unsqueeze(2).expand(-1, -1, feats.size(2)))
    frames = stacked.reshape(feats.size(0), first.size(0), STACKED * feats.size(2))

    return frames, low_frame_lengths(lengths)


def low_frame_lengths(lengths: torch.Tensor) -> torch.Tensor:
    """Convert numbers of feature frames (B,) to those of frames of low rate (B,)."""
    return torch.div(lengths + SHIFT - 1, SHIFT, rounding_mode="floor")


def _positions(start: int, size: int, dim: int, device: torch.device) -> torch.Tensor:
    """Return (1, size, dim) encodings of positions start .. start + size - 1: sines in the first
    half, then cosines.
    """
    position = torch.arange(start, start + size, dtype=torch.float32, device=device).unsqueeze(1)
    step = math.log(10000.0) / max(dim // 2 - 1, 1)
    angle = position * torch.exp(torch.arange(dim // 2, dtype=torch.float32, device=device) * -step)
    return torch.cat((angle.sin(), angle.cos()), dim=1).unsqueeze(0)


class SanmPositionalEncoding(RelPositionalEncoding):
    """Scales the input by the root of the encoder's width and adds encodings of positions, counted
    from 1.
    """

    def __init__(self, dim: int, width: int, dropout_rate: float) -> None:
        super().__init__(dim, dropout_rate)
        self.scale = math.sqrt(width)
        self.pe = _positions(0, TABLE_LENGTH, dim, torch.device("cpu"))

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, size, dim) encodings of the frames from `offset`, with dtype and device of
        `like`.
        """
        if offset + 1 + size <= self.pe.size(1):
            return self.pe[:, offset + 1 : offset + 1 + size].to(like.dtype)
        return _positions(offset + 1, size, self.dim, like.device).to(like.dtype)

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Scale x (B, T, dim), and add the encodings `positions` (1 or B, T, dim)."""
        return x * self.scale + positions


class IdentitySubsampling(Subsampling):
    """Keeps the frames; adds their positions."""

    def __init__(self, pos_enc: SanmPositionalEncoding) -> None:
        super().__init__(pos_enc, subsampling_rate=1, right_context=0)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        return x

    def output_lengths(self, lengths: torch.Tensor, frames: int, padded: int) -> torch.Tensor:
        """See Subsampling.output_lengths; a model that stacks frames does it before, and sets
        subsampling_rate.
        """
        return lengths


class Memory(nn.Module):
    """A depthwise convolution over frames, added to its input (FSMN, Zhang et al. 2018)."""

    def __init__(self, dim: int, dropout_rate: float, conf: MemoryConf) -> None:
        super().__init__()
        self.fsmn_block = nn.Conv1d(dim, dim, conf.kernel_size, groups=dim, bias=False)
        self.context = (conf.past, conf.kernel_size - 1 - conf.past)
        self.memory_dropout = Dropout(dropout_rate)

    def remember(self, x: torch.Tensor, padded: torch.Tensor | None) -> torch.Tensor:
        """Add what the memory finds around each frame of x (B, T, D) -> (B, T, D); `padded` (B, T,
        1) is True where x is padding, which counts as 0.
        """
        if padded is not None:
            x = x.masked_fill(padded, 0.0)
        seen = self.fsmn_block(pad(x.transpose(1, 2), self.context)).transpose(1, 2) + x
        seen = self.memory_dropout(seen)
        return seen if padded is None else seen.masked_fill(padded, 0.0)


class SanmSelfAttention(Memory):
    """Self-attention plus the memory of the values."""

    def __init__(self, in_dim: int, conf: SanmEncoderConf) -> None:
        super().__init__(conf.output_size, conf.attention_dropout_rate, conf)
        self.linear_q_k_v = nn.Linear(in_dim, 3 * conf.output_size)
        self.linear_out = nn.Linear(conf.output_size, conf.output_size)
        self.heads = conf.attention_heads
        self.dropout_rate = conf.attention_dropout_rate

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor | None, padded: torch.Tensor | None
    ) -> torch.Tensor:
        """Apply attention and memory: (B, T, in_dim) -> (B, T, D); see layered_encoder.py for `bias`
        and `padded`.
        """
        query, key, value = self.linear_q_k_v(x).chunk(3, dim=2)
        memory = self.remember(value, padded)
        query, key, value = (
            projected.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projected in (query, key, value)
        )
        heads = attended(query, key, value, bias, self.dropout_rate if self.training else 0.0)

        return self.linear_out(heads.transpose(1, 2).flatten(2)) + memory


class SanmEncoderLayer(nn.Module):
    """Self-attention with memory, then feed-forward; the first layer may change the width."""

    def __init__(self, in_dim: int, conf: SanmEncoderConf) -> None:
        super().__init__()
        self.self_attn = SanmSelfAttention(in_dim, conf)
        self.feed_forward = build_feed_forward(conf.output_size, conf.dropout_rate, conf.blocks)
        self.norm1 = nn.LayerNorm(in_dim)
        self.norm2 = nn.LayerNorm(conf.output_size)
        self.dropout = Dropout(conf.dropout_rate)
        self.keeps_width = in_dim == conf.output_size

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor | None,
        att_past: torch.Tensor | None = None,
        cnn_past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Apply the layer to x (B, T, in_dim) -> (B, T, D). There is no streaming: both pasts stay as
        they are.
        """
        attended = self.dropout(self.self_attn(self.norm1(x), bias, padded))
        x = x + attended if self.keeps_width else attended
        return x + self.dropout(self.feed_forward(self.norm2(x))), att_past, cnn_past


class SanmEncoder(LayeredEncoder):
    """Encoder with memory. Its first layer, `encoders0`, changes the width from that of the
    features.
    """

    def __init__(
        self, input_size: int, conf: SanmEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        if input_size % 2:
            raise ValueError(
                f"input_dim {input_size} is odd, but positions need an even width; use more mel "
                "bins"
            )

        pos_enc = SanmPositionalEncoding(input_size, conf.output_size, conf.positional_dropout_rate)
        layers: list[nn.Module] = [
            SanmEncoderLayer(conf.output_size, conf) for _ in range(conf.num_blocks - 1)
        ]
        traits = replace(
            traits_of(conf.blocks),
            obstacle="the memory of a SANM encoder keeps nothing between chunks; decode without "
            "streaming",
            never_streams=True,
            export_obstacle="a model with a SANM encoder has no export, except those of families "
            "that sherpa-onnx alone runs",
        )
        super().__init__(IdentitySubsampling(pos_enc), conf.blocks, traits, layers, global_cmvn)
        self.encoders0 = nn.ModuleList([SanmEncoderLayer(input_size, conf)])

    @torch.jit.unused
    def _blocks(
        self,
        x: torch.Tensor,
        bias: torch.Tensor,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
        between: list[Intermediate] | None,
    ) -> torch.Tensor:
        """Apply all layers to whole utterances; the first changes the width of x (B, T, F)."""
        x = self.encoders0[0](x, bias, pos_emb, padded)[0]
        return super()._blocks(x, bias, pos_emb, padded, between)


class SanmEncoderWithTp(SanmEncoder):
    """Encoder with memory in two parts: a second stack of layers follows the normalisation of the first."""

    def __init__(
        self, input_size: int, conf: SanmEncoderWithTpConf, global_cmvn: nn.Module | None = None
    ) -> None:
        super().__init__(input_size, conf, global_cmvn)
        self.tp_encoders = nn.ModuleList(
            [SanmEncoderLayer(conf.output_size, conf) for _ in range(conf.tp_blocks)]
        )
        self.tp_norm = nn.LayerNorm(conf.output_size)

    @torch.jit.unused
    def _blocks(
        self,
        x: torch.Tensor,
        bias: torch.Tensor,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
        between: list[Intermediate] | None,
    ) -> torch.Tensor:
        """Apply both stacks of layers to whole utterances."""
        x = super()._blocks(x, bias, pos_emb, padded, between)
        recomputes = self.gradient_checkpointing and self.training
        for layer in self.tp_encoders:
            x = run_layer(layer, recomputes, x, bias, pos_emb, padded)

        return self.tp_norm(x)
