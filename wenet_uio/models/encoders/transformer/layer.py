"""Layer of the transformer encoder."""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.models.dropout import Dropout
from wenet_uio.models.encoder_layer import self_attention
from wenet_uio.models.encoders.transformer.conf import TransformerEncoderConf
from wenet_uio.models.feed_forward import build_feed_forward
from wenet_uio.models.norm import build_norm


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
        """See the docstring of encoder_layer.py."""
        residual = x
        x, att_present = self.self_attn(
            self.norm1(x) if self.normalize_before else x, bias, pos_emb, att_past
        )
        x = residual + self.dropout(x)
        if not self.normalize_before:
            x = self.norm1(x)

        x = x + self.dropout(self.feed_forward(self.norm2(x) if self.normalize_before else x))
        if not self.normalize_before:
            x = self.norm2(x)

        return x, att_present, cnn_past

    def reach(self) -> tuple[int, int] | None:
        """See LocalLayer.reach."""
        return self.self_attn.reach()
