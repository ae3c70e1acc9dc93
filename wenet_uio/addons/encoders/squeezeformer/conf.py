"""`encoder_conf` of the squeezeformer. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from wenet_uio.config.base import NotNegative, Positive
from wenet_uio.config.encoder import (
    Activation,
    ChunkConf,
    DropoutRate,
    EncoderSection,
    heads_divide,
    odd_or_causal,
)
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf

BlockIndices = NotNegative | tuple[NotNegative, ...]


class SqueezeformerEncoderConf(ChunkConf, EncoderSection):
    """Squeezeformer (Kim et al. 2022): the frame rate is halved at block `reduce_idx` and restored
    at `recover_idx`.
    """

    encoder_dim: Positive = 256
    """Width of the blocks."""
    output_size: Positive = 256
    attention_heads: Positive = 4
    num_blocks: Positive = 12
    reduce_idx: BlockIndices | None = 5
    """Number of the block before which the rate is halved, or a list of them; null: never."""
    recover_idx: BlockIndices | None = 11
    """Number of the block before which the rate is restored; a list has one entry for each
    `reduce_idx`."""
    time_reduction_layer_type: Literal["conv1d", "stream"] = "conv1d"
    """Convolution that halves the rate: over 5 frames (conv1d) or over 1 frame (stream, for
    streaming)."""
    feed_forward_expansion_factor: Positive = 4
    """Hidden width of the feed-forward modules, in units of encoder_dim."""
    dw_stride: bool = False
    """The second convolution of the input layer is depthwise."""
    input_dropout_rate: DropoutRate = 0.1
    feed_forward_dropout_rate: DropoutRate = 0.1
    attention_dropout_rate: DropoutRate = 0.1
    dropout: DropoutRate = 0.1
    """After each module."""
    pos_enc_layer_type: Literal["rel_pos"] = "rel_pos"
    do_rel_shift: bool = True
    """Shift the scores of positions as in Transformer-XL. Positions then count from the end of the
    utterance; streaming needs false."""
    cnn_module_kernel: Positive = 31
    """Encoder frames."""
    cnn_norm_type: Literal["batch_norm", "layer_norm"] = "batch_norm"
    causal: bool = False
    """The convolution sees no future frames; streaming needs this."""
    adaptive_scale: bool = True
    """A learned scale and bias before each module."""
    activation_type: Activation = "swish"
    normalize_before: bool = False
    """Layer normalisation before each module (true) or after it (false)."""
    concat_after: Literal[False] = False
    init_weights: bool = True
    """Not used, a key of WeNet: torch initialises weights with the same bounds by default."""

    @model_validator(mode="after")
    def _can_be_built(self) -> SqueezeformerEncoderConf:
        """Raise ValueError if no encoder can have these sizes."""
        heads_divide(self.attention_heads, "encoder_dim", self.encoder_dim)
        odd_or_causal(self.causal, cnn_module_kernel=self.cnn_module_kernel)
        if self.encoder_dim % 2:
            raise ValueError(f"encoder_dim {self.encoder_dim} is odd: rel_pos needs an even width")

        changes = [*self.reduce_before, *self.recover_before]
        if len(self.reduce_before) != len(self.recover_before) or changes != sorted(set(changes)):
            raise ValueError(
                f"reduce_idx {self.reduce_idx} and recover_idx {self.recover_idx}: expected two "
                "rising lists of the same length, with every reduce_idx below every recover_idx"
            )

        if changes and changes[-1] >= self.num_blocks:
            raise ValueError(
                f"recover_idx {self.recover_idx} is not below num_blocks {self.num_blocks}"
            )

        return self

    @property
    def blocks(self) -> ConformerEncoderConf:
        """The modules of a block, as the section of a conformer."""
        return ConformerEncoderConf(
            output_size=self.encoder_dim,
            attention_heads=self.attention_heads,
            num_blocks=self.num_blocks,
            linear_units=self.feed_forward_expansion_factor * self.encoder_dim,
            dropout_rate=self.feed_forward_dropout_rate,
            attention_dropout_rate=self.attention_dropout_rate,
            activation_type=self.activation_type,
            normalize_before=self.normalize_before,
            cnn_module_kernel=self.cnn_module_kernel,
            cnn_module_norm=self.cnn_norm_type,
            causal=self.causal,
            static_chunk_size=self.static_chunk_size,
            use_dynamic_chunk=self.use_dynamic_chunk,
            use_dynamic_left_chunk=self.use_dynamic_left_chunk,
        )

    @property
    def reduce_before(self) -> tuple[int, ...]:
        """`reduce_idx` as a tuple."""
        return _block_numbers(self.reduce_idx)

    @property
    def recover_before(self) -> tuple[int, ...]:
        """`recover_idx` as a tuple."""
        return _block_numbers(self.recover_idx)

    @property
    def reductions(self) -> tuple[int, ...]:
        """Factor by which the frame rate of each block is below that of the input layer."""
        exponents = []
        for block in range(self.num_blocks):
            reduced = sum(place <= block for place in self.reduce_before)
            recovered = sum(place <= block for place in self.recover_before)
            exponents.append(reduced - recovered)

        return tuple(2**exponent for exponent in exponents)


def _block_numbers(indices: BlockIndices | None) -> tuple[int, ...]:
    """Return the numbers of a key that takes null, one number or a list."""
    if indices is None:
        return ()
    return (indices,) if isinstance(indices, int) else indices
