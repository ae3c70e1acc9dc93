"""Multi-layer perceptron with convolutional gating (cgMLP, Sakuma et al. 2022): the local branch of
branchformers.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.addons.encoders.branchformer.conf import BranchEncoderConf
from wenet_uio.models.convolution import DepthwiseConv
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.layer_parts import ACTIVATIONS


class ConvolutionalGate(nn.Module):
    """Applies a convolution over time to one half of the channels, then multiplies the other half
    by the result.
    """

    def __init__(self, conf: BranchEncoderConf) -> None:
        super().__init__()
        half = conf.cgmlp_linear_units // 2
        self.norm = nn.LayerNorm(half)
        self.conv = DepthwiseConv(half, conf.cgmlp_conv_kernel, conf.causal)
        self.linear = nn.Linear(half, half) if conf.use_linear_after_conv else None
        self.act = (
            nn.Identity()
            if conf.gate_activation == "identity"
            else ACTIVATIONS[conf.gate_activation]()
        )
        self.dropout = Dropout(conf.dropout_rate)

    def forward(
        self, x: torch.Tensor, padded: torch.Tensor | None, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gate one half of x (B, T, 2 C) by the other -> (B, T, C), and the next `past`. padded (B,
        T, 1), past (B, C, left_frames) or None.
        """
        gated, gate = x.chunk(2, dim=2)
        # As in WeNet, the norm also applies to the zeros before the first frame: they become the
        # bias of the norm.
        gate, present = self.conv.remember(gate, past)
        gate = self.conv(self.norm(gate), padded)
        if self.linear is not None:
            gate = self.linear(gate)

        return self.dropout(gated * self.act(gate)), present


class ConvolutionalGatingMLP(nn.Module):
    """Linear layer to more channels, activation, gate, linear layer back to the width of the
    encoder.
    """

    def __init__(self, conf: BranchEncoderConf) -> None:
        super().__init__()
        self.channel_proj1 = nn.Sequential(
            nn.Linear(conf.output_size, conf.cgmlp_linear_units), nn.GELU()
        )
        self.csgu = ConvolutionalGate(conf)
        self.channel_proj2 = nn.Linear(conf.cgmlp_linear_units // 2, conf.output_size)

    def forward(
        self, x: torch.Tensor, padded: torch.Tensor | None, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply the module to a batch or to a chunk.

        Args:
            x: (B, T, D).
            padded: (B, T, 1) bool, True where x is padding; None: no padding.
            past: (B, cgmlp_linear_units / 2, left_frames); None outside of streaming.

        Returns:
            (B, T, D), and the next `past`, or None outside of streaming.
        """
        x, present = self.csgu(self.channel_proj1(x), padded, past)
        return self.channel_proj2(x), present
