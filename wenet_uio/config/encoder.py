"""Keys of `encoder_conf` that several encoders share. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from wenet_uio.config.base import AboveZero, BelowOne, NotNegative, Positive, Section


class ChunkConf(Section):
    """Keys of streaming: the sizes of the chunks that attention is limited to."""

    static_chunk_size: NotNegative = 0
    """Encoder frames of a chunk in training and decoding; 0: no fixed chunks."""
    use_dynamic_chunk: bool = False
    """Draw a chunk size for each training batch."""
    use_dynamic_left_chunk: bool = False
    """Draw the number of left chunks for each training batch."""

    @field_validator("static_chunk_size", mode="before")
    @classmethod
    def _none_if_negative(cls, size: Any) -> Any:
        return 0 if size == -1 else size  # some configs of WeNet say -1

    @model_validator(mode="after")
    def _chunks_agree(self) -> ChunkConf:
        if self.use_dynamic_chunk and self.static_chunk_size:
            raise ValueError("use_dynamic_chunk and static_chunk_size exclude each other")
        if self.use_dynamic_left_chunk and not self.use_dynamic_chunk:
            raise ValueError("use_dynamic_left_chunk needs use_dynamic_chunk")
        return self


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


DropoutRate = BelowOne
Activation = Literal["relu", "swish", "gelu", "tanh", "hardtanh", "selu"]
PositionEncoding = Literal["abs_pos", "rel_pos", "no_pos", "rope_pos", "abs_pos_whisper"]
SelfAttention = Literal["selfattn", "rel_selfattn", "rope_abs_selfattn", "shaw_rel_selfattn"]
ContextFrames = Annotated[int, Field(ge=-1)]
LIMITED = ("selfattn", "rel_selfattn", "rope_abs_selfattn")
"""Kinds of attention that att_context_size can limit."""


class EncoderSection(Section):
    """Base of the sections `encoder_conf` of all encoders."""

    # Some encoders have these as keys, others compute them from their keys. Fields of the base
    # would stand first in every train.yaml, so only the types are stated.
    if TYPE_CHECKING:

        @property
        def output_size(self) -> int:
            """Width of the encoder frames."""
            ...

        @property
        def num_blocks(self) -> int:
            """Number of layers."""
            ...

        @property
        def attention_heads(self) -> int:
            """Heads of the layers."""
            ...


class StackConf(Section):
    """Keys of every stack of layers."""

    attention_heads: Positive = 4
    num_blocks: Positive = 6
    dropout_rate: DropoutRate = 0.1
    positional_dropout_rate: DropoutRate = 0.1


class AttentionConf(StackConf):
    """Keys of every stack of layers of general attention."""

    query_bias: bool = True
    """Bias of the queries and, as in WeNet, of the output of self-attention."""
    key_bias: bool = True
    value_bias: bool = True
    norm_eps: AboveZero = 1e-5
    """Epsilon of the layer normalisations. Branchformers use it for the last normalisation only, as
    in WeNet."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    use_sdpa: bool = True
    """Not used, a key of WeNet: attention always calls scaled_dot_product_attention."""
    layer_norm_type: Literal["layer_norm", "rms_norm"] = "layer_norm"
    """Normalisations of the layers, except those in convolutions. Branchformers use it for the last
    one only."""
    n_kv_head: Positive | None = None
    """Heads of keys and values, each for several heads of queries; default: attention_heads."""
    head_dim: Positive | None = None
    """Width of a head; default: the width of the layer divided by attention_heads."""

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.n_kv_head or self.attention_heads

    @model_validator(mode="after")
    def _heads_share_keys(self) -> AttentionConf:
        if self.n_kv_head and self.attention_heads % self.n_kv_head:
            raise ValueError(
                f"attention_heads {self.attention_heads} is not divisible by n_kv_head "
                f"{self.n_kv_head}"
            )
        return self


class FeedForwardConf(Section):
    """Keys of the feed-forward modules."""

    linear_units: Positive = 2048
    """Width of the hidden layer."""
    activation_type: Activation = "relu"
    mlp_type: Literal["position_wise_feed_forward", "gated", "moe"] = "position_wise_feed_forward"
    """gated: the hidden layer has a gate; moe: each frame goes through a few of n_expert
    modules."""
    mlp_bias: bool = True
    n_expert: Positive = 8
    n_expert_activated: Positive = 2
    """moe: modules of each frame, at most n_expert."""

    @model_validator(mode="after")
    def _has_experts(self) -> FeedForwardConf:
        if self.mlp_type == "moe" and self.n_expert_activated > self.n_expert:
            raise ValueError(
                f"n_expert_activated {self.n_expert_activated} is above n_expert {self.n_expert}"
            )
        return self


class EncoderConf(AttentionConf, ChunkConf, InputLayerConf, EncoderSection):
    """Keys of encoders whose layers have general attention."""

    output_size: Positive = 256
    attention_dropout_rate: DropoutRate = 0.0
    pos_enc_layer_type: PositionEncoding = "rel_pos"
    selfattention_layer_type: SelfAttention = "rel_selfattn"

    @model_validator(mode="after")
    def _heads_divide_width(self) -> EncoderConf:
        """Raise ValueError if the width is no multiple of the number of heads."""
        heads_divide(self.attention_heads, "output_size", self.output_size)
        if self.output_size % 2 and self.pos_enc_layer_type != "no_pos":
            raise ValueError(
                f"output_size {self.output_size} is odd: {self.pos_enc_layer_type} needs an even "
                "width"
            )

        _attention_fits(self)
        return self


class LimitedContextConf(EncoderConf):
    """Keys of encoders whose frames may see their neighbours only, as in NeMo."""

    att_context_size: tuple[ContextFrames, ContextFrames] = (-1, -1)
    """Encoder frames that a frame sees before it and after it; -1: all. With two limits, the scores
    of attention take memory for one block of frames, whatever the length. For audio much longer
    than in training use rope_pos: its scores depend on distances, those of rel_pos and abs_pos on
    positions, which training did not see."""

    @model_validator(mode="after")
    def _context_is_possible(self) -> LimitedContextConf:
        """Raise ValueError if `att_context_size` has no effect beside the other keys."""
        if self.att_context_size == (-1, -1):
            return self

        if self.use_dynamic_chunk or self.static_chunk_size:
            raise ValueError(
                "att_context_size and chunks exclude each other: remove it, or the keys with "
                "`chunk`"
            )

        if self.selfattention_layer_type not in LIMITED:
            raise ValueError(
                f"att_context_size needs a selfattention_layer_type of {', '.join(LIMITED)}, "
                f"found {self.selfattention_layer_type}"
            )

        return self


def heads_divide(heads: int, name: str, width: int) -> None:
    """Raise a ValueError if `width`, the value of key `name`, is not divisible by `heads`."""
    if width % heads:
        raise ValueError(f"{name} {width} is not divisible by attention_heads {heads}")


def odd_or_causal(causal: bool, **kernels: int) -> None:
    """Raise a ValueError for a kernel of even size, which has no centre frame, unless the
    convolution is causal.
    """
    for name, kernel in kernels.items():
        if not causal and kernel % 2 == 0:
            raise ValueError(f"{name} {kernel} is even: without `causal: true` it must be odd")


def _attention_fits(conf: EncoderConf) -> None:
    """Raise a ValueError if the attention module cannot have these positions or heads."""
    if (conf.pos_enc_layer_type == "rope_pos") != (
        conf.selfattention_layer_type == "rope_abs_selfattn"
    ):
        raise ValueError("rope_pos (pos_enc_layer_type) and rope_abs_selfattn need one another")

    head_dim = conf.head_dim or conf.output_size // conf.attention_heads
    if conf.pos_enc_layer_type == "rope_pos" and head_dim % 2:
        raise ValueError(
            f"rope_pos turns one half of a head against the other: head_dim {head_dim} is odd"
        )

    width = (conf.head_dim or 0) * conf.attention_heads
    if width not in (0, conf.output_size) and conf.selfattention_layer_type != "selfattn":
        raise ValueError(
            f"head_dim {conf.head_dim} * attention_heads {conf.attention_heads} is {width}; "
            f"{conf.selfattention_layer_type} needs output_size {conf.output_size}"
        )


class MemoryConf(Section):
    """The memory of a SANM layer: a depthwise convolution over frames or tokens."""

    kernel_size: Positive = 11
    """Frames or tokens."""
    sanm_shfit: NotNegative = 0
    """Frames by which the kernel is shifted to the past. WeNet spells this key so."""

    @model_validator(mode="after")
    def _kernel_reaches_the_frame(self) -> MemoryConf:
        if self.past >= self.kernel_size:
            raise ValueError(
                f"sanm_shfit {self.sanm_shfit} moves the kernel of {self.kernel_size} away from "
                "its frame"
            )
        return self

    @property
    def past(self) -> int:
        """Frames that the kernel sees before its frame."""
        return (self.kernel_size - 1) // 2 + self.sanm_shfit
