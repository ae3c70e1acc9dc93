"""`encoder_conf` of every encoder except the squeezeformer. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, model_validator

from wenet_uio.config.base import Section
from wenet_uio.config.chunks import ChunkConf
from wenet_uio.config.input_layer import InputLayerConf

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
DropoutRate = Annotated[float, Field(ge=0.0, lt=1.0)]
Activation = Literal["relu", "swish", "gelu", "tanh", "hardtanh", "selu"]
PositionEncoding = Literal["abs_pos", "rel_pos", "no_pos", "rope_pos", "abs_pos_whisper"]
SelfAttention = Literal["selfattn", "rel_selfattn", "rope_abs_selfattn", "shaw_rel_selfattn"]
ContextFrames = Annotated[int, Field(ge=-1)]
LIMITED = ("selfattn", "rel_selfattn", "rope_abs_selfattn")
"""Kinds of attention that att_context_size can limit."""
PerBlock = Probability | tuple[Probability, ...]


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
    norm_eps: float = Field(default=1e-5, gt=0)
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


class EncoderConf(AttentionConf, ChunkConf, InputLayerConf):
    """Keys of every encoder except the squeezeformer, whose keys have other names."""

    output_size: Positive = 256
    attention_dropout_rate: DropoutRate = 0.0
    pos_enc_layer_type: PositionEncoding = "rel_pos"
    selfattention_layer_type: SelfAttention = "rel_selfattn"

    @model_validator(mode="after")
    def _heads_divide_width(self) -> EncoderConf:
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


class TransformerEncoderConf(LimitedContextConf, FeedForwardConf):
    """Transformer (Vaswani et al. 2017)."""

    pos_enc_layer_type: PositionEncoding = "abs_pos"
    selfattention_layer_type: SelfAttention = "selfattn"
    normalize_before: bool = True
    """Layer normalisation before each module (true) or after it (false)."""


class ConformerKeys(EncoderConf, FeedForwardConf):
    """Keys of every conformer."""

    activation_type: Activation = "swish"
    normalize_before: bool = True
    macaron_style: bool = True
    """A second feed-forward module before the attention; the outputs of both are halved."""
    use_cnn_module: bool = True
    cnn_module_kernel: Positive = 15
    """Encoder frames."""
    causal: bool = False
    """The convolution sees no future frames; streaming needs this."""
    cnn_module_norm: Literal["batch_norm", "layer_norm"] = "batch_norm"
    conv_bias: bool = True
    positionwise_conv_kernel_size: Literal[1] = 1

    @model_validator(mode="after")
    def _kernel_is_centred(self) -> ConformerKeys:
        if self.use_cnn_module:
            odd_or_causal(self.causal, cnn_module_kernel=self.cnn_module_kernel)
        return self


class ConformerEncoderConf(ConformerKeys, LimitedContextConf):
    """Conformer (Gulati et al. 2020)."""

    conv_norm_eps: float = Field(default=1e-5, gt=0)
    conv_inner_factor: Annotated[int, Field(gt=0, multiple_of=2)] = 2
    """Channels of the convolution before its gate, in units of output_size; the gate halves
    them."""
    final_norm: bool = True
    """With normalize_before: a normalisation after the last layer."""


class FireredConformerEncoderConf(ConformerEncoderConf):
    """FireRedASR's conformer (Xu et al. 2025). WeNet's defaults for these two keys are those of
    other conformers.
    """

    pos_enc_layer_type: Literal["rel_pos_firered"]  # pyright: ignore[reportGeneralTypeIssues]
    selfattention_layer_type: Literal["firered_rel_selfattn"]  # pyright: ignore[reportGeneralTypeIssues]


class DualConformerEncoderConf(ConformerKeys):
    """A conformer for `model: ctl_model`; WeNet's encoder of this name takes fewer keys."""

    @property
    def conformer(self) -> ConformerEncoderConf:
        """The same conformer, with the further keys at their defaults."""
        return ConformerEncoderConf(**self.model_dump())


class BranchEncoderConf(EncoderConf):
    """Keys of both branchformers: attention and, in parallel, a perceptron with convolutional
    gating (cgMLP).
    """

    selfattention_layer_type: SelfAttention = Field(
        "rel_selfattn",
        validation_alias=AliasChoices("selfattention_layer_type", "attention_layer_type"),
    )
    """WeNet's recipes of 2022 and 2023 call this key `attention_layer_type`."""
    num_blocks: Positive = 12
    cgmlp_linear_units: Annotated[int, Field(gt=0, multiple_of=2)] = 2048
    """Width of the cgMLP's hidden layer; one half of the channels gates the other half."""
    cgmlp_conv_kernel: Positive = 31
    """Encoder frames."""
    use_linear_after_conv: bool = False
    """A linear layer after the convolution of the gate."""
    gate_activation: Literal["identity", Activation] = "identity"
    causal: bool = False
    """The convolutions see no future frames; streaming needs this."""
    stochastic_depth_rate: PerBlock = 0.0
    """Share of the training batches that skip a block; one number for all blocks, or a list with
    one for each."""

    @model_validator(mode="after")
    def _one_for_each_block(self) -> BranchEncoderConf:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.num_blocks:
                raise ValueError(
                    f"{name} has {len(value)} numbers for num_blocks {self.num_blocks}"
                )
        if max(self.of_blocks("stochastic_depth_rate")) == 1:
            raise ValueError(
                "stochastic_depth_rate 1 skips a block in every batch; use a rate below 1"
            )
        odd_or_causal(self.causal, cgmlp_conv_kernel=self.cgmlp_conv_kernel)
        return self

    def of_blocks(self, name: str) -> tuple[float, ...]:
        """The value of key `name` for each block."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * self.num_blocks


class BranchformerEncoderConf(BranchEncoderConf):
    """Branchformer (Peng et al. 2022)."""

    use_attn: bool = True
    use_cgmlp: bool = True
    merge_method: Literal["concat", "learned_ave", "fixed_ave"] = "concat"
    """How to merge the branches: project their concatenation, or their mean with learned or fixed
    weights."""
    cgmlp_weight: PerBlock = 0.5
    """fixed_ave: weight of the cgMLP; one number for all blocks, or a list with one for each."""
    attn_branch_drop_rate: PerBlock = 0.0
    """learned_ave: share of the training batches that drop the attention branch; one number, or one
    for each block."""

    @model_validator(mode="after")
    def _has_a_branch(self) -> BranchformerEncoderConf:
        if not self.use_attn and not self.use_cgmlp:
            raise ValueError("use_attn and use_cgmlp are both false: a block needs a branch")
        return self


class EBranchformerEncoderConf(BranchEncoderConf, FeedForwardConf):
    """E-Branchformer (Kim et al. 2022)."""

    activation_type: Activation = "swish"
    use_ffn: bool = True
    """A feed-forward module after the branches."""
    macaron_style: bool = True
    """With use_ffn: a second feed-forward module before the branches; the outputs of both are
    halved."""
    merge_conv_kernel: Positive = 3
    """Kernel of the convolution over both branches, in encoder frames."""
    conv_bias: bool = True
    """Not used: WeNet's e_branchformer accepts this key of the conformer and ignores it."""

    @model_validator(mode="after")
    def _merge_kernel_is_centred(self) -> EBranchformerEncoderConf:
        odd_or_causal(self.causal, merge_conv_kernel=self.merge_conv_kernel)
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
