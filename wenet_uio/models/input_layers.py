"""The input layers by their names in the yaml."""

from __future__ import annotations

from collections.abc import Callable

from wenet_uio.config.encoder import EncoderConf
from wenet_uio.models.embedding import PositionEncoding, build_position_encoding
from wenet_uio.models.separable import SeparableConv2dSubsampling8
from wenet_uio.models.subsampling import (
    Conv1dSubsampling2,
    Conv2dSubsampling2,
    Conv2dSubsampling4,
    Conv2dSubsampling6,
    Conv2dSubsampling8,
    DepthwiseConv2dSubsampling4,
    EmbeddingNoSubsampling,
    FireredConv2dSubsampling4,
    LinearNoSubsampling,
    StackNFramesSubsampling,
    Subsampling,
)

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
