"""Multi-layer perceptron with convolutional gating (Sakuma et al. 2022), the local branch of the branchformers."""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.encoder import BranchEncoderConf
from wenet_uio.models.activation import ACTIVATIONS
from wenet_uio.models.convolution import DepthwiseConv


class ConvolutionalGate(nn.Module):
    """One half of the channels, multiplied with the other half after a convolution over time."""

    def __init__(self, conf: BranchEncoderConf) -> None:
        super().__init__()
        half = conf.cgmlp_linear_units // 2
        self.norm = nn.LayerNorm(half)
        self.conv = DepthwiseConv(half, conf.cgmlp_conv_kernel, conf.causal)
        self.linear = nn.Linear(half, half) if conf.use_linear_after_conv else None
        self.act = nn.Identity() if conf.gate_activation == "identity" else ACTIVATIONS[conf.gate_activation]()
        self.dropout = nn.Dropout(conf.dropout_rate)

    def forward(self, x: torch.Tensor, past: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """x (B, T, 2 C), past (B, C, left_frames) or None -> (B, T, C), the next `past`."""
        kept, gate = x.chunk(2, dim=2)
        # What is in front of the first frame is normalised too: zeros become the bias of the norm, as in WeNet.
        gate, present = self.conv.remember(gate, past)
        gate = self.conv(self.norm(gate))
        if self.linear is not None:
            gate = self.linear(gate)
        return self.dropout(kept * self.act(gate)), present


class ConvolutionalGatingMLP(nn.Module):
    """Widen, activate, gate, narrow.

    The convolution does not know what is padding, as in WeNet: unless it is causal, the last frames of an utterance
    depend a little on how far it is padded.
    """

    def __init__(self, conf: BranchEncoderConf) -> None:
        super().__init__()
        self.channel_proj1 = nn.Sequential(nn.Linear(conf.output_size, conf.cgmlp_linear_units), nn.GELU())
        self.csgu = ConvolutionalGate(conf)
        self.channel_proj2 = nn.Linear(conf.cgmlp_linear_units // 2, conf.output_size)

    def forward(self, x: torch.Tensor, past: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """x (B, T, D), past (B, cgmlp_linear_units / 2, left_frames) or None -> (B, T, D), the next `past`."""
        x, present = self.csgu(self.channel_proj1(x), past)
        return self.channel_proj2(x), present
