"""Conformer encoder (Gulati et al. 2020)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from wenet_uio.models.attention import self_attention
from wenet_uio.models.convolution import ConvolutionModule
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.encoder_traits import SEES_FUTURE, EncoderTraits, traits_of
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf, DualConformerEncoderConf
from wenet_uio.models.layer_parts import build_feed_forward, build_norm
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.subsampling import Subsampling, input_layer


class ConformerEncoderLayer(nn.Module):
    """Halved feed-forward, self-attention, convolution, halved feed-forward (Gulati et al.
    2020).
    """

    def __init__(self, conf: ConformerEncoderConf) -> None:
        super().__init__()
        self.self_attn = self_attention(conf)
        self.feed_forward = build_feed_forward(conf.output_size, conf.dropout_rate, conf)
        self.feed_forward_macaron = (
            build_feed_forward(conf.output_size, conf.dropout_rate, conf)
            if conf.macaron_style
            else None
        )
        self.conv_module = ConvolutionModule(conf) if conf.use_cnn_module else None
        self.norm_ff = build_norm(conf.output_size, conf)
        self.norm_mha = build_norm(conf.output_size, conf)
        self.norm_ff_macaron = build_norm(conf.output_size, conf) if conf.macaron_style else None
        self.norm_conv = build_norm(conf.output_size, conf) if conf.use_cnn_module else None
        self.norm_final = build_norm(conf.output_size, conf) if conf.use_cnn_module else None
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
        """Apply the layer to x (B, T, D), whole utterances or a chunk -> (B, T, D), and both pasts
        for the next chunk; layered_encoder.py has the shapes.
        """
        if self.feed_forward_macaron is not None and self.norm_ff_macaron is not None:
            normed = self.norm_ff_macaron(x) if self.normalize_before else x
            half = self.feed_forward_macaron(normed)
            x = torch.add(x, self.dropout(half), alpha=self.ff_scale)
            if not self.normalize_before:
                x = self.norm_ff_macaron(x)

        normed = self.norm_mha(x) if self.normalize_before else x
        attended, att_present = self.attend(normed, bias, pos_emb, padded, att_past)
        x = x + self.dropout(attended)
        if not self.normalize_before:
            x = self.norm_mha(x)

        x, cnn_present = self.convolve(x, padded, cnn_past)

        normed = self.norm_ff(x) if self.normalize_before else x
        x = torch.add(x, self.dropout(self.feed_forward(normed)), alpha=self.ff_scale)
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
        """Apply self-attention to x (B, T, D); return the past for the next chunk too."""
        return self.self_attn(x, bias, pos_emb, att_past)

    def convolve(
        self, x: torch.Tensor, padded: torch.Tensor | None, cnn_past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Add the output of the convolution module to x (B, T, D); return the past for the next
        chunk too.
        """
        if self.conv_module is None or self.norm_conv is None:
            return x, None

        normed = self.norm_conv(x) if self.normalize_before else x
        convolved, present = self.conv_module(normed, padded, cnn_past)
        x = x + self.dropout(convolved)
        if not self.normalize_before:
            x = self.norm_conv(x)
        return x, present

    def reach(self) -> tuple[int, int] | None:
        """Return how many frames before and after a frame its output depends on; None: all frames."""
        attended = self.self_attn.reach()
        if attended is None or self.conv_module is None:
            return attended

        before, after = attended
        kernel = self.conv_module.depthwise_conv
        return before + kernel.left_frames + kernel.margin, after + kernel.margin


class ConformerEncoder(LayeredEncoder):
    """Conformer encoder (Gulati et al. 2020), with dynamic chunks as in U2 (Zhang et al. 2020)."""

    LAYER = ConformerEncoderLayer

    def __init__(
        self, input_size: int, conf: ConformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [self.LAYER(conf) for _ in range(conf.num_blocks)]
        embed = input_layer(input_size, conf)
        traits = self._traits(conf, embed)
        super().__init__(embed, conf, traits, layers, global_cmvn, conf.normalize_before)
        self.after_norm = self.after_norm if conf.final_norm else nn.Identity()

    def _traits(self, conf: ConformerEncoderConf, embed: Subsampling) -> EncoderTraits:
        convolves = conf.use_cnn_module
        return replace(
            traits_of(conf),
            obstacle=SEES_FUTURE if convolves and not conf.causal else embed.obstacle,
            cnn_cache_frames=conf.cnn_module_kernel - 1 if convolves and conf.causal else 0,
        )


def dual_conformer(
    input_size: int, conf: DualConformerEncoderConf, global_cmvn: nn.Module | None = None
) -> ConformerEncoder:
    """Build the conformer of a model that compares chunks with full context."""
    return ConformerEncoder(input_size, conf.conformer, global_cmvn)
