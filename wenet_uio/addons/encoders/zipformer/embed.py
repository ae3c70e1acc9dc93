"""Input layer of the Zipformer: convolutions that halve the frame rate, and a ConvNeXt layer
(section 3.1).
"""

import torch
from torch import nn
from torch.nn.functional import linear, pad

from wenet_uio.addons.encoders.zipformer.modules import (
    BiasNorm,
    ScheduledDropout,
    SwooshR,
    swoosh_l,
)
from wenet_uio.addons.encoders.zipformer.regularisers import (
    Balancer,
    ScaleGradient,
    Whitener,
    kept_rows,
)
from wenet_uio.models.clock import Clock, Clocked, Schedule
from wenet_uio.models.conv2d import Conv2d, channels_last
from wenet_uio.models.embedding import NoPositionalEncoding
from wenet_uio.models.masks import length_mask
from wenet_uio.models.subsampling import Subsampling

CHANNELS = (8, 32, 128)
CONTEXT = 3
"""Frames after the convolutions that the ConvNeXt layer sees on each side."""


def convolved_bins(features: int) -> int:
    """Return the bins that the convolutions leave of `features`: two of them, with a kernel of 3 and
    without padding, step by 2 bins.
    """
    return ((features - 1) // 2 - 1) // 2


def pointwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Apply a convolution with a kernel of 1 to x (…, C); as a linear layer it is faster on
    CPUs.
    """
    return linear(x, weight.flatten(1), bias)


class ConvNext(Clocked):
    """A depthwise convolution of 7 by 7, then two pointwise ones (Liu et al. 2022)."""

    def __init__(self, clock: Clock, channels: int) -> None:
        super().__init__(clock)
        self.depthwise_conv = nn.Conv2d(
            channels, channels, 2 * CONTEXT + 1, groups=channels, padding=(0, CONTEXT)
        )
        self.pointwise_conv1 = nn.Conv2d(channels, 3 * channels, 1)
        self.hidden_balancer = Balancer(clock, (0.3, 1.0), (0.75, 5.0))
        self.pointwise_conv2 = nn.Conv2d(3 * channels, channels, 1)

        with torch.no_grad():
            self.pointwise_conv2.weight.mul_(0.01)
            assert self.pointwise_conv2.bias is not None
            nn.init.uniform_(self.pointwise_conv2.bias, -0.001, 0.001)

        self.out_balancer = Balancer(clock, (0.4, 0.6), (1.0, 6.0))
        self.out_whiten = Whitener(clock, 5.0, 5.0)
        self.margin = CONTEXT
        self.skip_rate = Schedule(clock, (0.0, 0.2), (20000.0, 0.015))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve (B, C, CONTEXT + T + CONTEXT, F) -> (B, T, F, C)."""
        seen = self.depthwise_conv(x).permute(0, 2, 3, 1)
        hidden = self.hidden_balancer(
            pointwise(seen, self.pointwise_conv1.weight, self.pointwise_conv1.bias)
        )
        out = pointwise(swoosh_l(hidden), self.pointwise_conv2.weight, self.pointwise_conv2.bias)
        if self.training:
            out = self.thinned(out)

        same = x[:, :, self.margin : x.size(2) - self.margin].permute(0, 2, 3, 1)
        return self.out_whiten(self.out_balancer(same + out))

    @torch.jit.unused
    def thinned(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, with zeros for the utterances that skip the layer."""
        return x * kept_rows(x, self.skip_rate())


class ZipformerEmbed(Subsampling):
    """Three convolutions and a ConvNeXt layer: features -> frames at half the rate."""

    def __init__(
        self, clock: Clock, input_size: int, output_size: int, dropout_rate: float
    ) -> None:
        super().__init__(
            NoPositionalEncoding(output_size, 0.0),
            subsampling_rate=2,
            right_context=8 + 2 * CONTEXT,
        )
        self.optional_context = 2 * CONTEXT
        width = convolved_bins(input_size)
        if width < 1:
            raise ValueError(
                f"input_dim {input_size} is too narrow for the convolutions of a zipformer; use 7 "
                "or more"
            )

        first, second, third = CHANNELS
        self.conv = channels_last(
            nn.Sequential(
                nn.Conv2d(1, first, 3, padding=(0, 1)),
                ScaleGradient(0.2),
                self._limited(clock, 1.0),
                SwooshR(),
                Conv2d(first, second, 3, 2),
                self._limited(clock, 4.0),
                SwooshR(),
                Conv2d(second, third, 3, (1, 2)),
                self._limited(clock, 4.0),
                SwooshR(),
            )
        )
        self.convnext = channels_last(ConvNext(clock, third))
        self.out = nn.Linear(width * third, output_size)
        self.out_whiten = Whitener(clock, 4.0, 8.0, strength=0.02)
        self.out_norm = BiasNorm(output_size)
        self.dropout = ScheduledDropout(clock, dropout_rate, shared_dim=1)
        self.cache_shape = (third, CONTEXT, width)
        """Frames that a chunk needs of the chunk before: channels, frames, bins."""

    @staticmethod
    def _limited(clock: Clock, largest: float) -> Balancer:
        return Balancer(clock, (0.05, 0.95), (0.2, largest), channel_dim=1)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Convert features x (B, T, F) to frames (B, T', D) without positions."""
        margin = self.convnext.margin
        return self.finish(pad(self.convolve(x), (0, 0, margin, margin)))

    def convolve(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve features x (B, T, F) -> (B, C, (T - 7) // 2, F')."""
        return self.conv(x.unsqueeze(1))

    def finish(self, x: torch.Tensor) -> torch.Tensor:
        """Apply ConvNeXt and project: (B, C, CONTEXT + T' + CONTEXT, F') -> (B, T', D)."""
        x = self.convnext(x).transpose(2, 3).flatten(2)
        return self.dropout(self.out_norm(self.out_whiten(self.out(x))))

    @torch.jit.unused
    def forward_batch(
        self, x: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See Subsampling.forward_batch."""
        convolved = self.convolve(x)
        lengths = self.output_lengths(lengths, convolved.size(2), x.size(1))
        if self.masks_padding:
            convolved = convolved * length_mask(lengths, convolved.size(2))[:, None, :, None]

        frames = self.finish(pad(convolved, (0, 0, CONTEXT, CONTEXT)))
        return frames, self.pos_enc.position_encoding(0, 0, frames), lengths
