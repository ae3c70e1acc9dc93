"""Keys of `encoder_conf` for the input layer. Keys and defaults are WeNet's, except those of its
`dwconv2d8`.
"""

from __future__ import annotations

from typing import Literal

from wenet_uio.config.base import Section
from wenet_uio.config.batch import Positive

InputLayer = Literal[
    "conv2d",
    "conv2d6",
    "conv2d8",
    "linear",
    "conv1d2",
    "conv2d2",
    "stack_n_frames",
    "dwconv2d4",
    "dwconv2d8",
    "embed",
    "firered_conv2d4",
]


class InputLayerConf(Section):
    """Keys of the input layer."""

    input_layer: InputLayer = "conv2d"
    """Input layer that lowers the frame rate by 4 (conv2d, dwconv2d4, firered_conv2d4), 6, 8
    (conv2d8, dwconv2d8), by 2 (conv1d2, conv2d2, stack_n_frames), or not at all: linear, or embed,
    whose input is label ids (B, T) instead of features. WeNet itself fails on dwconv2d4 in other
    encoders than the squeezeformer, and has no dwconv2d8."""
    subsampling_conv_channels: Positive = 256
    """dwconv2d8: channels of the convolutions. Its frames of 80 ms need units of several letters,
    BPE or words."""
