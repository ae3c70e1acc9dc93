"""Decoder of a Paraformer: vectors of all tokens and encoder frames -> scores of all tokens at
once.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.addons.encoders.sanm.encoder import Memory
from wenet_uio.addons.families.paraformer.conf import SanmDecoderConf
from wenet_uio.models.dropout import Dropout, attended
from wenet_uio.models.layer_parts import recomputed
from wenet_uio.models.masks import additive, length_mask

NORM_EPS = 1e-12
"""Of the normalisations before each module, as in FunASR."""


class SourceAttention(nn.Module):
    """Attention over the encoder frames, with keys and values from one projection."""

    def __init__(self, dim: int, conf: SanmDecoderConf) -> None:
        super().__init__()
        self.linear_q = nn.Linear(dim, dim)
        self.linear_k_v = nn.Linear(dim, 2 * dim)
        self.linear_out = nn.Linear(dim, dim)
        self.heads = conf.attention_heads
        self.dropout_rate = conf.dropout_rate

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor, memory_bias: torch.Tensor
    ) -> torch.Tensor:
        """Apply the attention of tokens x (B, N, D) to frames `memory` (B, T, D) -> (B, N, D);
        `memory_bias` is (B, 1, 1, T).
        """
        key, value = self.linear_k_v(memory).chunk(2, dim=2)
        query = self._split_heads(self.linear_q(x))  # (B, H, N, D / H)
        key = self._split_heads(key)  # (B, H, T, D / H)
        value = self._split_heads(value)
        dropout_rate = self.dropout_rate if self.training else 0.0

        heads = attended(query, key, value, memory_bias, dropout_rate)  # (B, H, N, D / H)
        return self.linear_out(heads.transpose(1, 2).flatten(2))

    def _split_heads(self, projected: torch.Tensor) -> torch.Tensor:
        """Split vectors (B, L, D) into those of the heads (B, H, L, D / H)."""
        return projected.unflatten(2, (self.heads, -1)).transpose(1, 2)


class NormedFeedForward(nn.Module):
    """Feed-forward with a normalisation of the hidden layer."""

    def __init__(self, dim: int, conf: SanmDecoderConf) -> None:
        super().__init__()
        self.w_1 = nn.Linear(dim, conf.linear_units)
        self.norm = nn.LayerNorm(conf.linear_units)
        self.w_2 = nn.Linear(conf.linear_units, dim, bias=False)
        self.dropout = Dropout(conf.dropout_rate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the module: (..., D) -> (..., D)."""
        return self.w_2(self.norm(self.dropout(self.w_1(x).relu())))


class SanmDecoderLayer(nn.Module):
    """Feed-forward, memory over the tokens, attention over the encoder frames."""

    def __init__(self, dim: int, conf: SanmDecoderConf) -> None:
        super().__init__()
        self.self_attn = Memory(dim, conf.dropout_rate, conf)
        self.src_attn = SourceAttention(dim, conf)
        self.feed_forward = NormedFeedForward(dim, conf)
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.norm3 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(conf.dropout_rate)

    def forward(
        self, x: torch.Tensor, padded: torch.Tensor, memory: torch.Tensor, memory_bias: torch.Tensor
    ) -> torch.Tensor:
        """Apply the layer to tokens x (B, N, D) -> (B, N, D).

        Args:
            padded: (B, N, 1) True where x is padding.
            memory: (B, T, D) encoder frames.
            memory_bias: (B, 1, 1, T) added to the scores of the frames; very low for padding.
        """
        tokens = self.norm2(self.feed_forward(self.norm1(x)))
        x = x + self.dropout(self.self_attn.remember(tokens, padded))
        return x + self.dropout(self.src_attn(self.norm3(x), memory, memory_bias))


class LastFeedForward(nn.Module):
    """The last block: a normalisation and a feed-forward module."""

    def __init__(self, dim: int, conf: SanmDecoderConf) -> None:
        super().__init__()
        self.feed_forward = NormedFeedForward(dim, conf)
        self.norm1 = nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the module: (..., D) -> (..., D)."""
        return self.feed_forward(self.norm1(x))


class SanmDecoder(nn.Module):
    """Scores all tokens at once (Paraformer, Gao et al. 2022)."""

    bidirectional = False

    def __init__(self, vocab_size: int, dim: int, conf: SanmDecoderConf) -> None:
        super().__init__()
        self.decoders = nn.ModuleList([SanmDecoderLayer(dim, conf) for _ in range(conf.num_blocks)])
        self.decoders3 = nn.ModuleList([LastFeedForward(dim, conf)])
        self.after_norm = nn.LayerNorm(dim)
        self.output_layer = nn.Linear(dim, vocab_size)
        self.gradient_checkpointing = conf.gradient_checkpointing

    def forward(
        self,
        memory: torch.Tensor,
        lengths: torch.Tensor,
        embeds: torch.Tensor,
        counts: torch.Tensor,
    ) -> torch.Tensor:
        """Score the tokens of a batch.

        Args:
            memory: (B, T, D) encoder frames.
            lengths: (B,) frames.
            embeds: (B, N, D) vectors of the tokens.
            counts: (B,) numbers of tokens.

        Returns:
            Logits (B, N, V).
        """
        padded = ~length_mask(counts, embeds.size(1)).unsqueeze(2)  # (B, N, 1)
        is_frame = length_mask(lengths, memory.size(1)).unsqueeze(1)  # (B, 1, T)
        memory_bias = additive(is_frame, memory.dtype)  # (B, 1, 1, T)

        x = embeds
        for layer in self.decoders:
            if self.gradient_checkpointing and self.training:
                x = recomputed(layer, x, padded, memory, memory_bias)
            else:
                x = layer(x, padded, memory, memory_bias)

        for layer in self.decoders3:
            x = layer(x)

        return self.output_layer(self.after_norm(x))
