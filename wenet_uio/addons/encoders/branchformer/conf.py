"""`encoder_conf` of both branchformers. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, model_validator

from wenet_uio.config.base import Positive, Probability
from wenet_uio.config.encoder import (
    Activation,
    EncoderConf,
    FeedForwardConf,
    SelfAttention,
    odd_or_causal,
)

PerBlock = Probability | tuple[Probability, ...]


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
        """Raise ValueError if a list has not one number for each block, or the sizes cannot be
        built.
        """
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
        """Return the value of key `name` for each block."""
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
