"""Input layers: features -> frames of the encoder's width at a lower rate, with their positions."""

from __future__ import annotations

import torch
from torch import nn


class Subsampling(nn.Module):
    """What the encoder needs of an input layer.

    `subsampling_rate`: input frames per output frame. `right_context`: input frames that the last output frame sees
    beyond its first one. Output frame t depends on input frames rate * t .. rate * t + right_context.
    """

    def __init__(self, pos_enc: nn.Module, subsampling_rate: int, right_context: int) -> None:
        super().__init__()
        self.pos_enc = pos_enc
        self.subsampling_rate = subsampling_rate
        self.right_context = right_context

    def output_lengths(self, lengths: torch.Tensor, frames: int) -> torch.Tensor:
        """Input frames (B,) -> output frames (B,), of `frames` in the batch; 0 where shorter than one window."""
        windows = torch.div(lengths - self.right_context - 1, self.subsampling_rate, rounding_mode="floor") + 1
        return windows.clamp(min=0, max=frames)

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """(1, size, D) encodings of output frames from `offset`."""
        return self.pos_enc.position_encoding(offset, size, like)


class LinearNoSubsampling(Subsampling):
    """One linear layer; every frame stays."""

    def __init__(self, input_size: int, output_size: int, dropout_rate: float, pos_enc: nn.Module) -> None:
        super().__init__(pos_enc, subsampling_rate=1, right_context=0)
        self.out = nn.Sequential(
            nn.Linear(input_size, output_size), nn.LayerNorm(output_size), nn.Dropout(dropout_rate)
        )

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """x (B, T, F) -> (B, T, D), position encodings (1, T, D)."""
        return self.pos_enc(self.out(x), offset)


def _convolutions(output_size: int, shapes: tuple[tuple[int, int], ...]) -> nn.Sequential:
    """Square convolutions (kernel, stride), each with a ReLU behind it.

    Weights lie with channels last in memory: about 1.3 times as fast on CPUs, and what tensor cores want.
    """
    layers: list[nn.Module] = []
    channels = 1
    for kernel, stride in shapes:
        layers += [nn.Conv2d(channels, output_size, kernel, stride), nn.ReLU(inplace=True)]
        channels = output_size
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def _width_after(width: int, shapes: tuple[tuple[int, int], ...]) -> int:
    """Bins left of `width`; too few bins are an error."""
    left = width
    for kernel, stride in shapes:
        left = (left - kernel) // stride + 1
    if left < 1:
        raise ValueError(f"input_dim {width} is too narrow for the convolutions of input_layer; use more mel bins")
    return left


def _spread(x: torch.Tensor) -> torch.Tensor:
    """(B, C, T, F) -> (B, T, C * F)."""
    return x.transpose(1, 2).flatten(2)


class Conv2dSubsampling4(Subsampling):
    """Two convolutions of stride 2."""

    SHAPES = ((3, 2), (3, 2))

    def __init__(self, input_size: int, output_size: int, dropout_rate: float, pos_enc: nn.Module) -> None:
        super().__init__(pos_enc, subsampling_rate=4, right_context=6)
        self.conv = _convolutions(output_size, self.SHAPES)
        self.out = nn.Sequential(nn.Linear(output_size * _width_after(input_size, self.SHAPES), output_size))

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """x (B, T, F) -> (B, T', D), position encodings (1, T', D)."""
        return self.pos_enc(self.out(_spread(self.conv(x.unsqueeze(1)))), offset)


class Conv2dSubsampling6(Subsampling):
    """Convolutions of stride 2 and 3."""

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (5, 3))
    RIGHT_CONTEXT = 10

    def __init__(self, input_size: int, output_size: int, dropout_rate: float, pos_enc: nn.Module) -> None:
        rate = 1
        for _, stride in self.SHAPES:
            rate *= stride
        super().__init__(pos_enc, subsampling_rate=rate, right_context=self.RIGHT_CONTEXT)
        self.conv = _convolutions(output_size, self.SHAPES)
        self.linear = nn.Linear(output_size * _width_after(input_size, self.SHAPES), output_size)

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """x (B, T, F) -> (B, T', D), position encodings (1, T', D)."""
        return self.pos_enc(self.linear(_spread(self.conv(x.unsqueeze(1)))), offset)


class Conv2dSubsampling8(Conv2dSubsampling6):
    """Three convolutions of stride 2."""

    SHAPES = ((3, 2), (3, 2), (3, 2))
    RIGHT_CONTEXT = 14


class DepthwiseConv2dSubsampling4(Subsampling):
    """Two convolutions of stride 2, the second one depthwise with `dw_stride` (Kim et al. 2022).

    Scaled and encoded before the projection, not behind it as in the other input layers.
    """

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (3, 2))

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: nn.Module, dw_stride: bool
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=4, right_context=6)
        groups = output_size if dw_stride else 1
        self.pw_conv = nn.Conv2d(1, output_size, 3, 2).to(memory_format=torch.channels_last)
        self.dw_conv = nn.Conv2d(output_size, output_size, 3, 2, groups=groups).to(memory_format=torch.channels_last)
        width = output_size * _width_after(input_size, self.SHAPES)
        self.input_proj = nn.Sequential(nn.Linear(width, output_size), nn.Dropout(dropout_rate))

    def output_lengths(self, lengths: torch.Tensor, frames: int) -> torch.Tensor:
        """As Subsampling.output_lengths, but WeNet's squeezeformer counts windows that reach into the padding too."""
        windows = torch.div(lengths + 3, 4, rounding_mode="floor").clamp(max=frames)
        return windows.masked_fill(lengths <= self.right_context, 0)

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """x (B, T, F) -> (B, T', D), position encodings (1, T', D)."""
        x = self.dw_conv(self.pw_conv(x.unsqueeze(1)).relu()).relu()
        x, positions = self.pos_enc(_spread(x), offset)
        return self.input_proj(x), positions


INPUT_LAYERS: dict[str, type[Subsampling]] = {
    "linear": LinearNoSubsampling,
    "conv2d": Conv2dSubsampling4,
    "conv2d6": Conv2dSubsampling6,
    "conv2d8": Conv2dSubsampling8,
}
