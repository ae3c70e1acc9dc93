"""Depthwise convolution over time, and the convolution module of the conformer."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn.functional import conv1d, conv2d, glu, linear, pad

from wenet_uio.models.layer_parts import ACTIVATIONS

ONEDNN_HANGS_UP_TO = 16
"""With at most so many channels in bfloat16, channels last, oneDNN (torch 2.11, AVX512-BF16) never
ends to generate the code of a depthwise kernel of 15 or more taps."""


class ConvolutionKeys(Protocol):
    """What a convolution module needs of a section; the keys of the conformer."""

    @property
    def output_size(self) -> int: ...  # noqa: D102
    @property
    def cnn_module_kernel(self) -> int: ...  # noqa: D102
    @property
    def cnn_module_norm(self) -> str: ...  # noqa: D102
    @property
    def causal(self) -> bool: ...  # noqa: D102
    @property
    def conv_bias(self) -> bool: ...  # noqa: D102
    @property
    def conv_inner_factor(self) -> int: ...  # noqa: D102
    @property
    def conv_norm_eps(self) -> float: ...  # noqa: D102
    @property
    def activation_type(self) -> str: ...  # noqa: D102


class DepthwiseConv(nn.Conv1d):
    """Convolution with one kernel per channel, over the frames around each frame or (causal) up to
    each frame.

    With `stride` n it computes every n-th frame.
    """

    def __init__(
        self, channels: int, kernel: int, causal: bool, bias: bool = True, stride: int = 1
    ) -> None:
        super().__init__(channels, channels, kernel, stride, groups=channels, bias=bias)
        self.channels = channels
        self.as_image = channels > ONEDNN_HANGS_UP_TO
        self.left_frames = kernel - 1 if causal else 0
        self.margin = 0 if causal else (kernel - 1) // 2
        self.masks_padding = not causal  # a causal kernel sees no padding from within the utterance

    def remember(
        self, x: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Prepend the frames before x (B, T, C) that a causal kernel needs.

        Args:
            x: (B, T, C).
            past: (B, C, left_frames) frames before x; None outside of streaming: prepend zeros.

        Returns:
            (B, left_frames + T, C), and its last frames as the next `past`, or None outside of
            streaming.
        """
        if past is None:
            return pad(x, (0, 0, self.left_frames, 0)), None

        x = torch.cat((past.transpose(1, 2), x), dim=1)
        present = x[:, x.size(1) - self.left_frames :].transpose(1, 2)
        return x, present

    def forward(self, x: torch.Tensor, padded: torch.Tensor | None = None) -> torch.Tensor:
        """Apply the kernels: (B, left_frames + T, C) -> (B, ceil(T / stride), C).

        Args:
            padded: (B, T, 1) bool, True where x is padding. With `masks_padding` the kernels see
                zeros there, as they do beyond the end of an utterance alone. None: no padding.
        """
        if padded is not None and self.masks_padding:
            x = x.masked_fill(padded, 0.0)

        row, stride = x.transpose(1, 2), self.stride[0]  # (B, C, left_frames + T)
        if not self.as_image and _computes_in_bfloat16(x):
            row = conv1d(row, self.weight, self.bias, stride, self.margin, groups=self.groups)
            return row.transpose(1, 2)

        # An image of one row with channels last is three times as fast on CPUs as conv1d.
        image, kernels = row.unsqueeze(2), self.weight.unsqueeze(2)
        padding = (0, self.margin)
        image = conv2d(image, kernels, self.bias, stride, padding, groups=self.groups)
        return image.squeeze(2).transpose(1, 2)


def _computes_in_bfloat16(x: torch.Tensor) -> bool:
    """Tell whether a convolution of x on a CPU computes in bfloat16."""
    if torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage] - without autocast
        return x.dtype == torch.bfloat16

    return x.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")


class ConvolutionModule(nn.Module):
    """The conformer's convolution module (Gulati et al. 2020, section 2.2).

    Pointwise convolution, gated linear unit, depthwise convolution, norm, activation, pointwise
    convolution.
    """

    def __init__(self, conf: ConvolutionKeys, stride: int = 1) -> None:
        super().__init__()
        dim = conf.output_size
        self.use_layer_norm = conf.cnn_module_norm == "layer_norm"
        inner = conf.conv_inner_factor * dim // 2  # one half of the channels gates the other half
        self.pointwise_conv1 = nn.Conv1d(dim, 2 * inner, 1, bias=conf.conv_bias)
        self.depthwise_conv = DepthwiseConv(
            inner, conf.cnn_module_kernel, conf.causal, conf.conv_bias, stride
        )
        norm = nn.LayerNorm if self.use_layer_norm else nn.BatchNorm1d
        self.norm = norm(inner, eps=conf.conv_norm_eps)
        self.activation = ACTIVATIONS[conf.activation_type]()
        self.pointwise_conv2 = nn.Conv1d(inner, dim, 1, bias=conf.conv_bias)

    def forward(
        self, x: torch.Tensor, padded: torch.Tensor | None, past: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply the module to a batch or to a chunk.

        Args:
            x: (B, T, D).
            padded: (B, T, 1) bool, True where x is padding; None: no padding.
            past: (B, D, left_frames) frames before x; None outside of streaming.

        Returns:
            (B, ceil(T / stride), D), and the last frames of the input as the next `past`, or None
            outside of streaming.
        """
        if padded is not None and not self.depthwise_conv.masks_padding:
            x = x.masked_fill(padded, 0.0)

        x, present = self.depthwise_conv.remember(x, past)
        # A pointwise convolution is a matrix product on (B, T, D); this avoids the transpositions
        # of conv1d.
        x = linear(x, self.pointwise_conv1.weight.squeeze(2), self.pointwise_conv1.bias)
        x = self.depthwise_conv(glu(x, dim=2), padded)
        if self.use_layer_norm:
            x = self.norm(x)
        elif self.training and not torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            x = self.normed_to_longest(x, padded)
        else:
            x = self.norm(x.flatten(0, 1)).view(x.shape)

        x = self.activation(x)
        x = linear(x, self.pointwise_conv2.weight.squeeze(2), self.pointwise_conv2.bias)
        return x, present

    @torch.jit.unused
    def normed_to_longest(self, x: torch.Tensor, padded: torch.Tensor | None) -> torch.Tensor:
        """Apply the batch norm to x (B, ceil(T / stride), D), on a CPU up to the end of the longest
        utterance; padded (B, T, 1) is True where the input was padding.

        Frames after it, which train/objective.py adds, become zeros and do not change the
        statistics. Compiled layers take all frames: an end that depends on the data would compile
        them anew.
        """
        if padded is None or x.device.type != "cpu" or torch.compiler.is_compiling():
            return self.norm(x.flatten(0, 1)).view(x.shape)

        longest_input = int((~padded).sum(dim=1).max())
        longest = max(1, -(-longest_input // self.depthwise_conv.stride[0]))  # rounded up
        frames = x[:, :longest]
        normed = self.norm(frames.flatten(0, 1)).view(frames.shape)
        if longest < x.size(1):
            normed = pad(normed, (0, 0, 0, x.size(1) - longest))
        return normed
