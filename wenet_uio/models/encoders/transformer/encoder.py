"""Transformer encoder (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from wenet_uio.models.attention import self_attention
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.encoder_traits import traits_of
from wenet_uio.models.encoders.transformer.conf import TransformerEncoderConf
from wenet_uio.models.layer_parts import build_feed_forward, build_norm
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.subsampling import input_layer


class TransformerEncoderLayer(nn.Module):
    """Self-attention, then feed-forward (Vaswani et al. 2017)."""

    def __init__(self, conf: TransformerEncoderConf) -> None:
        super().__init__()
        self.self_attn = self_attention(conf)
        self.feed_forward = build_feed_forward(conf.output_size, conf.dropout_rate, conf)
        self.norm1 = build_norm(conf.output_size, conf)
        self.norm2 = build_norm(conf.output_size, conf)
        self.dropout = Dropout(conf.dropout_rate)
        self.normalize_before = conf.normalize_before

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor | None,
        att_past: torch.Tensor | None = None,
        cnn_past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Apply the layer to x (B, T, D), whole utterances or a chunk -> (B, T, D), and both pasts
        for the next chunk; layered_encoder.py has the shapes.
        """
        normed = self.norm1(x) if self.normalize_before else x
        attended, att_present = self.self_attn(normed, bias, pos_emb, att_past)
        x = x + self.dropout(attended)
        if not self.normalize_before:
            x = self.norm1(x)

        normed = self.norm2(x) if self.normalize_before else x
        x = x + self.dropout(self.feed_forward(normed))
        if not self.normalize_before:
            x = self.norm2(x)

        return x, att_present, cnn_past

    def reach(self) -> tuple[int, int] | None:
        """Return how many frames before and after a frame its output depends on; None: all frames."""
        return self.self_attn.reach()


class TransformerEncoder(LayeredEncoder):
    """Transformer encoder (Vaswani et al. 2017)."""

    def __init__(
        self, input_size: int, conf: TransformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [TransformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        embed = input_layer(input_size, conf)
        traits = replace(traits_of(conf), obstacle=embed.obstacle)
        super().__init__(embed, conf, traits, layers, global_cmvn, conf.normalize_before)
