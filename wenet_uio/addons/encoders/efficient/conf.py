"""`encoder_conf` of the Efficient Conformer. Keys and defaults are WeNet's."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import model_validator

from wenet_uio.config.base import NotNegative, Positive
from wenet_uio.config.encoder import (
    Activation,
    ChunkConf,
    DropoutRate,
    EncoderSection,
    InputLayerConf,
    StackConf,
    heads_divide,
    odd_or_causal,
)
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf


class EfficientConformerEncoderConf(StackConf, ChunkConf, InputLayerConf, EncoderSection):
    """Efficient Conformer (Burchi and Vielzeuf 2021): some blocks lower the frame rate, some attend
    in groups.
    """

    output_size: Positive = 256
    linear_units: Positive = 2048
    """Width of the hidden layer of the feed-forward modules."""
    attention_dropout_rate: DropoutRate = 0.0
    pos_enc_layer_type: Literal["rel_pos"] = "rel_pos"
    normalize_before: bool = True
    """Layer normalisation before each module (true) or after it (false)."""
    macaron_style: bool = True
    """A second feed-forward module before the attention; the outputs of both are halved."""
    activation_type: Activation = "swish"
    use_cnn_module: Literal[True] = True
    cnn_module_kernel: Positive = 15
    """Frames of a block."""
    causal: bool = False
    """The convolution sees no future frames; streaming needs this."""
    cnn_module_norm: Literal["batch_norm", "layer_norm"] = "batch_norm"
    stride_layer_idx: NotNegative | tuple[NotNegative, ...] = 3
    """Number of the block whose convolution lowers the frame rate, or a rising list of them."""
    stride: Positive | tuple[Positive, ...] = 2
    """Factor by which such a block lowers the rate; a list has one entry for each
    `stride_layer_idx`."""
    group_layer_idx: tuple[NotNegative, ...] = (0, 1, 2, 3)
    """Numbers of the blocks whose attention joins `group_size` neighbouring frames to one."""
    group_size: Positive = 3
    stride_kernel: bool = True
    """Blocks after a stride have a kernel that is shorter by the same factor."""

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, values: Any) -> Any:
        """Accept WeNet's `efficient_conf`, in which its yaml has the keys of strides and groups."""
        if not isinstance(values, dict) or "efficient_conf" not in values:
            return values

        values = dict(values)
        inner = values.pop("efficient_conf")
        if not isinstance(inner, dict):
            raise ValueError(f"efficient_conf: expected a section with keys, found {inner!r}")
        if twice := sorted(inner.keys() & values.keys()):
            raise ValueError(f"in encoder_conf and in efficient_conf: {', '.join(twice)}")

        return values | inner

    @model_validator(mode="after")
    def _can_be_built(self) -> EfficientConformerEncoderConf:
        """Raise ValueError if no encoder can have these strides, groups, heads and kernels."""
        places = _number_tuple(self.stride_layer_idx)
        if len(places) != len(_number_tuple(self.stride)) or list(places) != sorted(set(places)):
            raise ValueError(
                f"stride_layer_idx {self.stride_layer_idx} and stride {self.stride}: expected a "
                "rising list of blocks and a list of the same length"
            )

        for name, blocks in (
            ("stride_layer_idx", places),
            ("group_layer_idx", self.group_layer_idx),
        ):
            if blocks and max(blocks) >= self.num_blocks:
                raise ValueError(f"{name} {max(blocks)} is not below num_blocks {self.num_blocks}")

        heads_divide(self.attention_heads, "output_size", self.output_size)
        if self.output_size % 2:
            raise ValueError(f"output_size {self.output_size} is odd: rel_pos needs an even width")

        for place in range(self.num_blocks):
            if self._block_kernel(place) == 0:
                raise ValueError(
                    f"cnn_module_kernel {self.cnn_module_kernel} leaves no frame for block {place}"
                )
            odd_or_causal(
                self.causal, **{f"cnn_module_kernel of block {place}:": self._block_kernel(place)}
            )

        return self

    @property
    def strides(self) -> tuple[int, ...]:
        """Factor by which each block lowers the frame rate."""
        chosen = dict(
            zip(_number_tuple(self.stride_layer_idx), _number_tuple(self.stride), strict=True)
        )
        return tuple(chosen.get(place, 1) for place in range(self.num_blocks))

    @property
    def groups(self) -> tuple[int, ...]:
        """Frames that the attention of each block joins."""
        return tuple(
            self.group_size if place in self.group_layer_idx else 1
            for place in range(self.num_blocks)
        )

    @property
    def chunk_unit(self) -> int:
        """Streaming equals one pass for chunks that are a multiple of this number of frames of the
        input layer.
        """
        factor, unit = 1, 1
        for stride, group in zip(self.strides, self.groups, strict=True):
            unit = math.lcm(unit, factor * group)
            factor *= stride
        return math.lcm(unit, factor)

    def block(self, place: int) -> ConformerEncoderConf:
        """Return the modules of block `place`, as the section of a conformer."""
        return ConformerEncoderConf(
            output_size=self.output_size,
            attention_heads=self.attention_heads,
            num_blocks=self.num_blocks,
            linear_units=self.linear_units,
            dropout_rate=self.dropout_rate,
            positional_dropout_rate=self.positional_dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            input_layer=self.input_layer,
            subsampling_conv_channels=self.subsampling_conv_channels,
            activation_type=self.activation_type,
            normalize_before=self.normalize_before,
            macaron_style=self.macaron_style,
            cnn_module_kernel=self._block_kernel(place),
            cnn_module_norm=self.cnn_module_norm,
            causal=self.causal,
            static_chunk_size=self.static_chunk_size,
            use_dynamic_chunk=self.use_dynamic_chunk,
            use_dynamic_left_chunk=self.use_dynamic_left_chunk,
        )

    def _block_kernel(self, place: int) -> int:
        """Return the kernel of block `place`, in frames of the block."""
        if not self.stride_kernel:
            return self.cnn_module_kernel
        return self.cnn_module_kernel // math.prod(self.strides[:place])


def _number_tuple(value: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of a key that takes one number or a list."""
    return (value,) if isinstance(value, int) else value
