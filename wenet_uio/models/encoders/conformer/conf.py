"""`encoder_conf` of the conformer, and of the conformer of `ctl_model`. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from wenet_uio.config.base import Positive
from wenet_uio.config.encoder import (
    Activation,
    EncoderConf,
    FeedForwardConf,
    LimitedContextConf,
    odd_or_causal,
)


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


class DualConformerEncoderConf(ConformerKeys):
    """A conformer for `model: ctl_model`; WeNet's encoder of this name takes fewer keys."""

    @property
    def conformer(self) -> ConformerEncoderConf:
        """The same conformer, with the further keys at their defaults."""
        return ConformerEncoderConf(**self.model_dump())
