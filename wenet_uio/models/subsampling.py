"""Input layers: features -> frames of the encoder's width, usually at a lower rate, and position
encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config.encoder import EncoderConf
from wenet_uio.models.conv2d import Conv2d, channels_last, projected, spread
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.embedding import PositionEncoding, build_position_encoding
from wenet_uio.models.masks import length_mask

PIECE = 1024
"""Output frames that an input layer computes at once outside of training. The convolutions over an
hour of features at once would take gigabytes."""


class Subsampling(nn.Module):
    """Base class of input layers.

    `subsampling_rate`: input frames per output frame.
    `right_context`: output frame t depends on input frames rate * t .. rate * t + right_context.
    `optional_context`: the last of these input frames, which the end of an utterance need not have.
    `obstacle`: the reason why chunks give other frames than the whole utterance; empty if they do
    not.
    `masks_padding`: an utterance in a batch has the frames that it has alone; False: what WeNet
    gives, which for some input layers depends on the padding.
    """

    obstacle = ""

    def __init__(
        self, pos_enc: PositionEncoding, subsampling_rate: int, right_context: int
    ) -> None:
        super().__init__()
        self.pos_enc = pos_enc
        self.subsampling_rate = subsampling_rate
        self.right_context = right_context
        self.optional_context = 0
        self.masks_padding = True
        self.piece = 0 if self.obstacle else PIECE

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Convert features x (B, T, F) to frames (B, T', D), and return position encodings (1, T',
        D) from frame `offset`.
        """
        return self.pos_enc(self.project_in_pieces(x), offset)

    def project_in_pieces(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions; outside of training, long
        features are converted PIECE frames at a time to save memory.
        """
        if self.piece == 0 or self.training or self.optional_context > 0:
            return self.project(x)

        # A window of right_context + 1 features gives one frame, each `subsampling_rate` more
        # features give another.
        frames = (x.size(1) - self.right_context - 1) // self.subsampling_rate + 1
        if frames <= self.piece:
            return self.project(x)

        pieces: list[torch.Tensor] = []
        for first_frame in range(0, frames, self.piece):
            last_frame = first_frame + self.piece - 1
            start = first_frame * self.subsampling_rate
            end = last_frame * self.subsampling_rate + self.right_context + 1
            pieces.append(self.project(x[:, start:end]))

        return torch.cat(pieces, dim=1)

    @torch.jit.unused
    def forward_batch(
        self, x: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Convert padded features x (B, T, F) of `lengths` (B,) as `forward` does, and return
        output lengths (B,).
        """
        frames, positions = self(x)
        return frames, positions, self.output_lengths(lengths, frames.size(1), x.size(1))

    def output_lengths(self, lengths: torch.Tensor, frames: int, padded: int) -> torch.Tensor:
        """Convert input lengths (B,) to output lengths (B,); 0 for inputs shorter than one window.

        Args:
            frames: output frames of the padded batch, the largest output length.
            padded: input frames of the padded batch.
        """
        window = self.right_context - self.optional_context + 1  # inputs that one output needs
        outputs = torch.div(lengths - window, self.subsampling_rate, rounding_mode="floor") + 1
        return outputs.clamp(min=0, max=frames)

    def position_encoding(self, offset: int, size: int, like: torch.Tensor) -> torch.Tensor:
        """Return (1, size, D) encodings of output frames from `offset`, with dtype and device of
        `like`.
        """
        return self.pos_enc.position_encoding(offset, size, like)


class LinearNoSubsampling(Subsampling):
    """A linear layer that keeps the frame rate."""

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=1, right_context=0)
        self.out = nn.Sequential(
            nn.Linear(input_size, output_size), nn.LayerNorm(output_size), Dropout(dropout_rate)
        )

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        return self.out(x)


def _build_convolutions(output_size: int, shapes: tuple[tuple[int, int], ...]) -> nn.Sequential:
    """Build square convolutions of `shapes` (kernel, stride) to `output_size` channels, with a ReLU
    after each.
    """
    layers: list[nn.Module] = []
    channels = 1
    for kernel, stride in shapes:
        layers += [Conv2d(channels, output_size, kernel, stride), nn.ReLU(inplace=True)]
        channels = output_size

    return channels_last(nn.Sequential(*layers))


def count_bins(input_size: int, shapes: tuple[tuple[int, int], ...]) -> int:
    """Return the number of mel bins, of `input_size`, that are left after convolutions of `shapes`
    (kernel, stride).

    Raises:
        ValueError: no bin is left.
    """
    bins = input_size
    for kernel, stride in shapes:
        bins = (bins - kernel) // stride + 1

    if bins < 1:
        raise ValueError(
            f"input_dim {input_size} is too narrow for the convolutions of input_layer; use more "
            "mel bins"
        )

    return bins


class Conv2dSubsampling4(Subsampling):
    """Two convolutions of stride 2."""

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (3, 2))
    RATE, RIGHT_CONTEXT = 4, 6

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=self.RATE, right_context=self.RIGHT_CONTEXT)
        self.conv = _build_convolutions(output_size, self.SHAPES)
        width = output_size * count_bins(input_size, self.SHAPES)
        self.out = nn.Sequential(nn.Linear(width, output_size))

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        return self._project_maps(self.conv(x.unsqueeze(1)))

    def _project_maps(self, maps: torch.Tensor) -> torch.Tensor:
        """Return what the convolutions give (B, C, T', F') -> (B, T', D)."""
        if self.training and not torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            return projected(maps, cast("nn.Linear", self.out[0]))
        return self.out(spread(maps))


class FireredConv2dSubsampling4(Conv2dSubsampling4):
    """Two convolutions of stride 2 over the utterance and 6 frames of zeros after it
    (FireRedASR).
    """

    obstacle = "input_layer firered_conv2d4 pads each chunk with zeros"

    def output_lengths(self, lengths: torch.Tensor, frames: int, padded: int) -> torch.Tensor:
        """Convert input lengths (B,) to output lengths (B,): a window for each fourth input frame.

        WeNet also counts the windows that begin in the 6 frames of zeros after the utterance.
        """
        # Rounded up: ceil(L / 4) windows begin in an utterance of L frames, ceil((L + 6) / 4) before
        # the end of the zeros.
        first_frames = lengths if self.masks_padding else lengths + self.right_context
        windows = torch.div(first_frames + 3, 4, rounding_mode="floor").clamp(max=frames)
        return windows.masked_fill(lengths == 0, 0)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        x = pad(x, (0, 0, 0, self.right_context)).unsqueeze(1)
        return self._project_maps(self.conv(x))

    @torch.jit.unused
    def forward_batch(
        self, x: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Convert padded features (B, T, F) of `lengths` (B,) to frames, positions and lengths; the
        convolutions see zeros beyond the end of an utterance.
        """
        if self.masks_padding:
            x = x.masked_fill(~length_mask(lengths, x.size(1)).unsqueeze(2), 0.0)
        return super().forward_batch(x, lengths)


class Conv2dSubsampling6(Subsampling):
    """Convolutions of stride 2 and 3."""

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (5, 3))
    RIGHT_CONTEXT = 10

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding
    ) -> None:
        rate = 1
        for _, stride in self.SHAPES:
            rate *= stride

        super().__init__(pos_enc, subsampling_rate=rate, right_context=self.RIGHT_CONTEXT)
        self.conv = _build_convolutions(output_size, self.SHAPES)
        self.linear = nn.Linear(output_size * count_bins(input_size, self.SHAPES), output_size)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        maps = self.conv(x.unsqueeze(1))
        if self.training and not torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            return projected(maps, self.linear)
        return self.linear(spread(maps))


class Conv2dSubsampling8(Conv2dSubsampling6):
    """Three convolutions of stride 2."""

    SHAPES = ((3, 2), (3, 2), (3, 2))
    RIGHT_CONTEXT = 14


class Conv2dSubsampling2(Conv2dSubsampling4):
    """One convolution of stride 2."""

    SHAPES = ((3, 2),)
    RATE, RIGHT_CONTEXT = 2, 2

    def output_lengths(self, lengths: torch.Tensor, frames: int, padded: int) -> torch.Tensor:
        """Convert input lengths (B,) to output lengths (B,); in WeNet all windows that begin in the
        utterance count, ceil(L / 2), also those that end in the padding.
        """
        if self.masks_padding:
            return super().output_lengths(lengths, frames, padded)
        windows = torch.div(lengths + 1, 2, rounding_mode="floor").clamp(max=frames)
        return windows.masked_fill(lengths <= self.right_context, 0)


class Conv1dSubsampling2(Subsampling):
    """Two convolutions over time, the second with stride 2 (Radford et al. 2022)."""

    obstacle = "input_layer conv1d2 pads each chunk with zeros"

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=2, right_context=4)
        self.conv = nn.Sequential(
            nn.Conv1d(input_size, output_size, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(output_size, output_size, 3, stride=2, padding=1),
            nn.GELU(),
        )

    def output_lengths(self, lengths: torch.Tensor, frames: int, padded: int) -> torch.Tensor:
        """Halve input lengths (B,), rounded up; in WeNet, which does not mask padding, rounded down
        if `padded`, the length of the batch, is even.
        """
        round_up = 1 if self.masks_padding else padded % 2
        return torch.div(lengths + round_up, 2, rounding_mode="floor").clamp(max=frames)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        return self.conv(x.transpose(1, 2)).transpose(1, 2)

    @torch.jit.unused
    def forward_batch(
        self, x: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Convert padded features (B, T, F) of `lengths` (B,) to frames, positions and lengths; both
        convolutions see zeros beyond the end of an utterance.
        """
        if not self.masks_padding:
            return super().forward_batch(x, lengths)

        first_layer, second_layer = self.conv[:2], self.conv[2:]
        padded_frames = x.size(1)
        is_padding = ~length_mask(lengths, padded_frames).unsqueeze(1)  # (B, 1, T)
        x = x.transpose(1, 2)  # (B, F, T)
        x = first_layer(x.masked_fill(is_padding, 0.0))  # (B, D, T)
        x = second_layer(x.masked_fill(is_padding, 0.0))  # (B, D, T')
        frames, positions = self.pos_enc(x.transpose(1, 2))

        return frames, positions, self.output_lengths(lengths, frames.size(1), padded_frames)


class StackNFramesSubsampling(Subsampling):
    """Stacks each two frames, without overlap, and projects them."""

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=2, right_context=1)
        self.norm = nn.LayerNorm(2 * input_size)
        self.out = nn.Linear(2 * input_size, output_size)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        pairs = x.size(1) // 2
        stacked = x[:, : 2 * pairs].reshape(x.size(0), pairs, 2 * x.size(2))
        return self.out(self.norm(stacked))


class EmbeddingNoSubsampling(Subsampling):
    """Embeds label ids instead of features."""

    def __init__(
        self, input_size: int, output_size: int, dropout_rate: float, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=1, right_context=0)
        self.embed = nn.Embedding(input_size, output_size)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Embed ids x (B, T) below input_size -> (B, T, D)."""
        return self.embed(x)


class DepthwiseConv2dSubsampling4(Subsampling):
    """Two convolutions of stride 2; with `dw_stride` the second convolution is depthwise (Kim et
    al. 2022).
    """

    SHAPES: tuple[tuple[int, int], ...] = ((3, 2), (3, 2))

    def __init__(
        self,
        input_size: int,
        output_size: int,
        dropout_rate: float,
        pos_enc: PositionEncoding,
        dw_stride: bool = True,
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=4, right_context=6)
        (first_kernel, first_stride), (kernel, stride) = self.SHAPES
        groups = output_size if dw_stride else 1
        self.pw_conv = channels_last(nn.Conv2d(1, output_size, first_kernel, first_stride))
        self.dw_conv = channels_last(
            nn.Conv2d(output_size, output_size, kernel, stride, groups=groups)
        )
        width = output_size * count_bins(input_size, self.SHAPES)
        self.input_proj = nn.Sequential(nn.Linear(width, output_size), Dropout(dropout_rate))

    def convolve(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve features x (B, T, F) -> (B, T', C * F'), before the projection."""
        maps = self.pw_conv(x.unsqueeze(1)).relu()
        maps = self.dw_conv(maps).relu()  # (B, C, T', F')
        return spread(maps)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        return self.input_proj(self.convolve(x))


class SeparableConv2dSubsampling8(Subsampling):
    """Three convolutions of stride 2, the second and the third depthwise-separable (Rekesh et al.
    2023, section 3.1).

    The convolutions pad nothing, unlike NeMo's `dw_striding`: a frame sees the same features in a
    chunk, in an utterance, and in a batch.
    """

    SHAPES = ((3, 2), (3, 2), (3, 2))

    def __init__(
        self, input_size: int, output_size: int, channels: int, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=8, right_context=14)
        (first_kernel, first_stride), *later_shapes = self.SHAPES
        layers: list[nn.Module] = [
            nn.Conv2d(1, channels, first_kernel, first_stride),
            nn.ReLU(inplace=True),
        ]
        for kernel, stride in later_shapes:
            within_channels = nn.Conv2d(channels, channels, kernel, stride, groups=channels)
            across_channels = nn.Conv2d(channels, channels, 1)
            layers += [within_channels, across_channels, nn.ReLU(inplace=True)]

        self.conv = channels_last(nn.Sequential(*layers))
        self.out = nn.Linear(channels * count_bins(input_size, self.SHAPES), output_size)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        maps = self.conv(x.unsqueeze(1))
        if self.training and not torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            return projected(maps, self.out)
        return self.out(spread(maps))


WITHOUT_CHANNELS: dict[str, Callable[[int, int, float, PositionEncoding], Subsampling]] = {
    "linear": LinearNoSubsampling,
    "conv2d": Conv2dSubsampling4,
    "firered_conv2d4": FireredConv2dSubsampling4,
    "conv2d6": Conv2dSubsampling6,
    "conv2d8": Conv2dSubsampling8,
    "conv2d2": Conv2dSubsampling2,
    "dwconv2d4": DepthwiseConv2dSubsampling4,
    "conv1d2": Conv1dSubsampling2,
    "stack_n_frames": StackNFramesSubsampling,
    "embed": EmbeddingNoSubsampling,
}
"""{name in the yaml: class}."""
INPUT_LAYERS = (*WITHOUT_CHANNELS, "dwconv2d8")
"""Names in the yaml."""


def input_layer(input_size: int, conf: EncoderConf) -> Subsampling:
    """Build the input layer `conf.input_layer` with the position encoding
    `conf.pos_enc_layer_type`.
    """
    positions = build_position_encoding(conf)
    if conf.input_layer == "dwconv2d8":
        return SeparableConv2dSubsampling8(
            input_size, conf.output_size, conf.subsampling_conv_channels, positions
        )

    layer = WITHOUT_CHANNELS[conf.input_layer]
    return layer(input_size, conf.output_size, conf.dropout_rate, positions)
