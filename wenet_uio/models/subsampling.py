"""Input layers: features -> frames of the encoder's width, usually at a lower rate, and position encodings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from wenet_uio.models.embedding import PositionEncoding

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Subsampling(nn.Module):
    """Base class of input layers.

    `subsampling_rate`: input frames per output frame.
    `right_context`: output frame t depends on input frames rate * t .. rate * t + right_context.
    """

    def __init__(self, pos_enc: PositionEncoding, subsampling_rate: int, right_context: int) -> None:
        super().__init__()
        self.pos_enc = pos_enc
        self.subsampling_rate = subsampling_rate
        self.right_context = right_context

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Features x (B, T, F) -> (B, T', D) without positions."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Features x (B, T, F) -> (B, T', D), position encodings (1, T', D) from frame `offset`."""
        return self.pos_enc(self.project(x), offset)

    def output_lengths(self, lengths: torch.Tensor, frames: int) -> torch.Tensor:
        """Input lengths (B,) -> output lengths (B,), at most `frames`; 0 for inputs shorter than one window."""
        windows = torch.div(lengths - self.right_context - 1, self.subsampling_rate, rounding_mode="floor") + 1
        return windows.clamp(min=0, max=frames)

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """(1, size, D) encodings of output frames from `offset`, with dtype and device of `like`."""
        return self.pos_enc.position_encoding(offset, size, like)


class LinearNoSubsampling(Subsampling):
    """A linear layer that keeps the frame rate."""

    def __init__(self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding) -> None:
        super().__init__(pos_enc, subsampling_rate=1, right_context=0)
        self.out = nn.Sequential(
            nn.Linear(input_size, output_size), nn.LayerNorm(output_size), nn.Dropout(dropout_rate)
        )

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """See Subsampling.project."""
        return self.out(x)


def _channels_last(module: AnyModule) -> AnyModule:
    """Store weights with channels last: about 1.3 times as fast on CPUs, and the layout that tensor cores need."""
    # The stub of Module.to lacks the overload with memory_format alone, which torch documents.
    return module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def _convolutions(output_size: int, shapes: tuple[tuple[int, int], ...]) -> nn.Sequential:
    """Square convolutions of `shapes` (kernel, stride), with a ReLU after each convolution."""
    layers: list[nn.Module] = []
    channels = 1
    for kernel, stride in shapes:
        layers += [nn.Conv2d(channels, output_size, kernel, stride), nn.ReLU(inplace=True)]
        channels = output_size
    return _channels_last(nn.Sequential(*layers))


def _width_after(width: int, shapes: tuple[tuple[int, int], ...]) -> int:
    """Number of bins after the convolutions of `shapes`.

    Raises:
        ValueError: no bin is left.
    """
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

    def __init__(self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding) -> None:
        super().__init__(pos_enc, subsampling_rate=4, right_context=6)
        self.conv = _convolutions(output_size, self.SHAPES)
        self.out = nn.Sequential(nn.Linear(output_size * _width_after(input_size, self.SHAPES), output_size))

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """See Subsampling.project."""
        return self.out(_spread(self.conv(x.unsqueeze(1))))


class Conv2dSubsampling6(Subsampling):
    """Convolutions of stride 2 and 3."""

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (5, 3))
    RIGHT_CONTEXT = 10

    def __init__(self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding) -> None:
        rate = 1
        for _, stride in self.SHAPES:
            rate *= stride
        super().__init__(pos_enc, subsampling_rate=rate, right_context=self.RIGHT_CONTEXT)
        self.conv = _convolutions(output_size, self.SHAPES)
        self.linear = nn.Linear(output_size * _width_after(input_size, self.SHAPES), output_size)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """See Subsampling.project."""
        return self.linear(_spread(self.conv(x.unsqueeze(1))))


class Conv2dSubsampling8(Conv2dSubsampling6):
    """Three convolutions of stride 2."""

    SHAPES = ((3, 2), (3, 2), (3, 2))
    RIGHT_CONTEXT = 14


class DepthwiseConv2dSubsampling4(Subsampling):
    """Two convolutions of stride 2; with `dw_stride` the second convolution is depthwise (Kim et al. 2022).

    Unlike the other input layers, this one applies the position encoding before the projection.
    """

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (3, 2))

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding, dw_stride: bool
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=4, right_context=6)
        groups = output_size if dw_stride else 1
        self.pw_conv = _channels_last(nn.Conv2d(1, output_size, 3, 2))
        self.dw_conv = _channels_last(nn.Conv2d(output_size, output_size, 3, 2, groups=groups))
        width = output_size * _width_after(input_size, self.SHAPES)
        self.input_proj = nn.Sequential(nn.Linear(width, output_size), nn.Dropout(dropout_rate))

    def output_lengths(self, lengths: torch.Tensor, frames: int) -> torch.Tensor:
        """See Subsampling.output_lengths. As in WeNet's squeezeformer, windows that end in the padding count too."""
        windows = torch.div(lengths + 3, 4, rounding_mode="floor").clamp(max=frames)
        return windows.masked_fill(lengths <= self.right_context, 0)

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Features x (B, T, F) -> (B, T', D), position encodings (1, T', D)."""
        x = self.dw_conv(self.pw_conv(x.unsqueeze(1)).relu()).relu()
        x, positions = self.pos_enc(_spread(x), offset)
        return self.input_proj(x), positions


INPUT_LAYERS: dict[str, Callable[[int, int, float, PositionEncoding], Subsampling]] = {
    "linear": LinearNoSubsampling,
    "conv2d": Conv2dSubsampling4,
    "conv2d6": Conv2dSubsampling6,
    "conv2d8": Conv2dSubsampling8,
}
