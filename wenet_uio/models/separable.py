"""Input layer of FastConformer: an eighth of the frame rate through depthwise-separable
convolutions.
"""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.models.conv2d import channels_last, projected, spread
from wenet_uio.models.embedding import PositionEncoding
from wenet_uio.models.subsampling import Subsampling, width_after

SHAPES = ((3, 2), (3, 2), (3, 2))
"""Kernel and stride of the three steps."""


def _separable(channels: int, kernel: int, stride: int) -> list[nn.Module]:
    """Return a convolution within each channel, then one across channels."""
    within = nn.Conv2d(channels, channels, kernel, stride, groups=channels)
    return [within, nn.Conv2d(channels, channels, 1), nn.ReLU(inplace=True)]


class SeparableConv2dSubsampling8(Subsampling):
    """Three convolutions of stride 2, the second and the third depthwise-separable (Rekesh et al.
    2023, section 3.1).

    The convolutions pad nothing, unlike NeMo's `dw_striding`: a frame sees the same features in a
    chunk, in an utterance, and in a batch.
    """

    def __init__(
        self, input_size: int, output_size: int, channels: int, pos_enc: PositionEncoding
    ) -> None:
        super().__init__(pos_enc, subsampling_rate=8, right_context=14)
        layers: list[nn.Module] = [nn.Conv2d(1, channels, *SHAPES[0]), nn.ReLU(inplace=True)]
        for kernel, stride in SHAPES[1:]:
            layers += _separable(channels, kernel, stride)

        self.conv = channels_last(nn.Sequential(*layers))
        self.out = nn.Linear(channels * width_after(input_size, SHAPES), output_size)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """See Subsampling.project."""
        maps = self.conv(x.unsqueeze(1))
        if self.training and not torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            return projected(maps, self.out)
        return self.out(spread(maps))
