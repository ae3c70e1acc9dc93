"""`encoder_conf` of the squeezeformer. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from wenet_uio.config.encoder import (
    Activation,
    ChunkConf,
    ConformerEncoderConf,
    DropoutRate,
    NotNegative,
    Positive,
    heads_divide,
    odd_or_causal,
)

BlockIndices = NotNegative | tuple[NotNegative, ...]


class SqueezeformerEncoderConf(ChunkConf):
    """Kim et al. 2022, a U-Net in time: from block `reduce_idx` on at half the rate, from `recover_idx` at the full."""

    encoder_dim: Positive = 256
    """Width of the blocks."""
    output_size: Positive = 256
    attention_heads: Positive = 4
    num_blocks: Positive = 12
    reduce_idx: BlockIndices | None = 5
    """Block before which every second frame is dropped, or several, each with its `recover_idx`; null: none."""
    recover_idx: BlockIndices | None = 11
    """Block before which the frames come back."""
    time_reduction_layer_type: Literal["conv1d", "stream"] = "conv1d"
    """What drops frames: a convolution over 5, or (for streaming) over 1."""
    feed_forward_expansion_factor: Positive = 4
    """Width inside the feed-forward modules, in units of encoder_dim."""
    dw_stride: bool = False
    """Depthwise second convolution in the input layer."""
    input_dropout_rate: DropoutRate = 0.1
    feed_forward_dropout_rate: DropoutRate = 0.1
    attention_dropout_rate: DropoutRate = 0.1
    dropout: DropoutRate = 0.1
    """Behind each module."""
    pos_enc_layer_type: Literal["rel_pos"] = "rel_pos"
    do_rel_shift: bool = True
    """Scores of positions are shifted as in Transformer-XL; they then depend on the padding. False for streaming."""
    cnn_module_kernel: Positive = 31
    """Encoder frames."""
    cnn_norm_type: Literal["batch_norm", "layer_norm"] = "batch_norm"
    causal: bool = False
    """The convolution sees no future frames: needed for streaming."""
    adaptive_scale: bool = True
    """A learned scale and bias in front of each module."""
    activation_type: Activation = "swish"
    normalize_before: bool = False
    """Layer normalisation in front of each module (True) or behind it."""
    init_weights: bool = True
    """Read for compatibility: the bounds it asks for are those that torch initialises with anyway."""

    @model_validator(mode="after")
    def _can_be_built(self) -> SqueezeformerEncoderConf:
        heads_divide(self.attention_heads, "encoder_dim", self.encoder_dim)
        odd_or_causal(self.causal, cnn_module_kernel=self.cnn_module_kernel)
        if self.encoder_dim % 2:
            raise ValueError(f"encoder_dim {self.encoder_dim} is odd: rel_pos needs an even width")
        changes = [*self.reduce_before, *self.recover_before]
        if len(self.reduce_before) != len(self.recover_before) or changes != sorted(set(changes)):
            raise ValueError(
                f"reduce_idx {self.reduce_idx} and recover_idx {self.recover_idx}: expected as many of one as of the "
                "other, rising, all reductions in front of all recoveries"
            )
        if changes and changes[-1] >= self.num_blocks:
            raise ValueError(f"recover_idx {self.recover_idx} is not below num_blocks {self.num_blocks}")
        return self

    @property
    def blocks(self) -> ConformerEncoderConf:
        """The modules of a block in the conformer's names."""
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
        return _as_tuple(self.reduce_idx)

    @property
    def recover_before(self) -> tuple[int, ...]:
        """`recover_idx` as a tuple."""
        return _as_tuple(self.recover_idx)


def _as_tuple(indices: BlockIndices | None) -> tuple[int, ...]:
    if indices is None:
        return ()
    return (indices,) if isinstance(indices, int) else indices
