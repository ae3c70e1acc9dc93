"""Layers of the transformer and conformer encoders.

The layers of all encoders have the interface `forward(x, bias, pos_emb, padded, att_past,
cnn_past)`:

    x           (B, T, D)
    bias        added to the attention scores, broadcasts to (B, H, T, K); None: every frame sees every frame
    pos_emb     (1, K, D)
    padded      (B, T, 1) bool, True where x is padding; None: no padding
    att_past    (B, H, C, 2 D / H), keys and values of the C frames before x; None outside of streaming
    cnn_past    (B, D, frames), past input of the convolutions; None outside of streaming

A layer returns its output (B, T, D), and both pasts for the next chunk.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.encoder import (
    ConformerEncoderConf,
    EBranchformerEncoderConf,
    EncoderConf,
    TransformerEncoderConf,
)
from wenet_uio.models.attention import (
    FireredAttention,
    MultiHeadedAttention,
    RelPositionMultiHeadedAttention,
)
from wenet_uio.models.convolution import ConvolutionModule
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.feed_forward import build_feed_forward
from wenet_uio.models.norm import build_norm
from wenet_uio.models.rotary import RotaryMultiHeadedAttention
from wenet_uio.models.shaw import ShawMultiHeadedAttention

SELF_ATTENTIONS: dict[str, type[MultiHeadedAttention]] = {
    "selfattn": MultiHeadedAttention,
    "rel_selfattn": RelPositionMultiHeadedAttention,
    "rope_abs_selfattn": RotaryMultiHeadedAttention,
    "firered_rel_selfattn": FireredAttention,
    "shaw_rel_selfattn": ShawMultiHeadedAttention,
}


def self_attention(conf: EncoderConf) -> MultiHeadedAttention:
    """Build the attention module `conf.selfattention_layer_type`."""
    attention = SELF_ATTENTIONS[conf.selfattention_layer_type]
    return attention(conf.output_size, conf.attention_dropout_rate, conf)


def feed_forward(
    conf: TransformerEncoderConf | ConformerEncoderConf | EBranchformerEncoderConf,
) -> nn.Module:
    """Build a feed-forward module of the encoder."""
    return build_feed_forward(conf.output_size, conf.dropout_rate, conf)


def _norm(conf: EncoderConf) -> nn.Module:
    return build_norm(conf.output_size, conf)


class TransformerEncoderLayer(nn.Module):
    """Self-attention, then feed-forward (Vaswani et al. 2017)."""

    def __init__(self, conf: TransformerEncoderConf) -> None:
        super().__init__()
        self.self_attn = self_attention(conf)
        self.feed_forward = feed_forward(conf)
        self.norm1 = _norm(conf)
        self.norm2 = _norm(conf)
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
        """See the module docstring."""
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


class ConformerEncoderLayer(nn.Module):
    """Halved feed-forward, self-attention, convolution, halved feed-forward (Gulati et al.
    2020).
    """

    def __init__(self, conf: ConformerEncoderConf) -> None:
        super().__init__()
        self.self_attn = self_attention(conf)
        self.feed_forward = feed_forward(conf)
        self.feed_forward_macaron = feed_forward(conf) if conf.macaron_style else None
        self.conv_module = ConvolutionModule(conf) if conf.use_cnn_module else None
        self.norm_ff = _norm(conf)
        self.norm_mha = _norm(conf)
        self.norm_ff_macaron = _norm(conf) if conf.macaron_style else None
        self.norm_conv = _norm(conf) if conf.use_cnn_module else None
        self.norm_final = _norm(conf) if conf.use_cnn_module else None
        self.ff_scale = 0.5 if conf.macaron_style else 1.0
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
        """See the module docstring."""
        if self.feed_forward_macaron is not None and self.norm_ff_macaron is not None:
            half = self.feed_forward_macaron(
                self.norm_ff_macaron(x) if self.normalize_before else x
            )
            x = torch.add(x, self.dropout(half), alpha=self.ff_scale)
            if not self.normalize_before:
                x = self.norm_ff_macaron(x)

        attended, att_present = self.attend(
            self.norm_mha(x) if self.normalize_before else x, bias, pos_emb, padded, att_past
        )
        x = x + self.dropout(attended)
        if not self.normalize_before:
            x = self.norm_mha(x)

        x, cnn_present = self.convolve(x, padded, cnn_past)

        half = self.feed_forward(self.norm_ff(x) if self.normalize_before else x)
        x = torch.add(x, self.dropout(half), alpha=self.ff_scale)
        if not self.normalize_before:
            x = self.norm_ff(x)
        if self.norm_final is not None:
            x = self.norm_final(x)
        return x, att_present, cnn_present

    def attend(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor | None,
        att_past: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Self-attention of x (B, T, D); return the past for the next chunk too."""
        return self.self_attn(x, bias, pos_emb, att_past)

    def convolve(
        self, x: torch.Tensor, padded: torch.Tensor | None, cnn_past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Add the output of the convolution module to x (B, T, D); return the past for the next
        chunk too.
        """
        if self.conv_module is None or self.norm_conv is None:
            return x, None
        convolved, present = self.conv_module(
            self.norm_conv(x) if self.normalize_before else x, padded, cnn_past
        )
        x = x + self.dropout(convolved)
        return x if self.normalize_before else self.norm_conv(x), present
