"""`decoder_conf`, `predictor_conf` and `model_conf` of a paraformer. Keys and defaults are
WeNet's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from wenet_uio.config import Config, ConfigError
from wenet_uio.config.base import (
    AboveZero,
    BelowOne,
    NotNegative,
    Positive,
    Probability,
    Section,
)
from wenet_uio.config.encoder import AttentionConf, DropoutRate, MemoryConf, StackConf
from wenet_uio.config.model import ModelKeys

One = Annotated[float, Field(ge=1.0, le=1.0)]


class SanmDecoderConf(StackConf, MemoryConf):
    """Decoder that scores all tokens at once (Paraformer, Gao et al. 2022). Its width is the
    encoder's output_size.
    """

    linear_units: Positive = 2048
    """Width of the hidden layer of the feed-forward modules."""
    att_layer_num: Positive = 16
    """Number of blocks with attention; must be num_blocks."""
    positional_dropout_rate: DropoutRate = 0.1
    """Not used, a key of WeNet: tokens have no positions."""
    self_attention_dropout_rate: DropoutRate = 0.0
    """Not used, a key of WeNet: tokens do not attend to tokens."""
    src_attention_dropout_rate: DropoutRate = 0.0
    """Not used, a key of WeNet, which takes dropout_rate."""
    input_layer: str = "embed"
    """Not used, a key of WeNet."""
    use_output_layer: Literal[True] = True
    normalize_before: Literal[True] = True
    src_attention: Literal[True] = True
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""

    @model_validator(mode="after")
    def _all_blocks_attend(self) -> SanmDecoderConf:
        if self.att_layer_num != self.num_blocks:
            raise ValueError(
                f"att_layer_num {self.att_layer_num} and num_blocks {self.num_blocks} must be the "
                "same"
            )
        return self

    @property
    def source(self) -> AttentionConf:
        """Keys of the attention over the encoder frames."""
        return AttentionConf(attention_heads=self.attention_heads)


class CifPredictorConf(Section):
    """Continuous integrate-and-fire (CIF, Dong and Xu 2020): how many tokens there are, and the
    frames of each.
    """

    idim: Positive | None = None
    """The encoder's output_size, which is also the default."""
    l_order: NotNegative = 1
    """Frames that the convolution sees before its frame."""
    r_order: NotNegative = 1
    """Frames that the convolution sees after its frame."""
    threshold: One = 1.0
    """Sum of the weights of the frames of a token."""
    dropout: DropoutRate = 0.1
    smooth_factor: AboveZero = 1.0
    """Factor of the weights."""
    noise_threshold: Probability = 0.0
    """Subtracted from the weights."""
    tail_threshold: BelowOne = 0.45
    """Weight of one more frame after the last frame, so that an incomplete last token is given
    too."""
    residual: bool = True
    """Add the input of the convolution to its output."""
    cnn_groups: NotNegative = 0
    """Groups of the convolution; 0: depthwise."""


class ParaformerPredictorConf(CifPredictorConf):
    """CIF with a second branch that finds the times of the tokens."""

    smooth_factor2: AboveZero = 0.25
    """smooth_factor of the second branch."""
    noise_threshold2: Probability = 0.01
    """noise_threshold of the second branch."""
    upsample_times: Positive = 3
    """Time steps of the second branch in each encoder frame."""


class ParaformerConf(ModelKeys):
    """Losses of a Paraformer."""

    stacked_frames: ClassVar[int] = 7
    ctc_weight: Probability = 0.5
    """Weight of the CTC loss; the weights of the other losses are 1."""
    ignore_id: Annotated[int, Field(lt=0)] = -1
    """Label that pads a batch."""
    lsm_weight: BelowOne = 0.0
    """Label smoothing."""
    length_normalized_loss: bool = False
    """Loss of the decoder per token of a batch instead of per utterance."""
    sampler: bool = True
    """In training, replace some inputs of the decoder by embeddings of the true tokens (Qian et al.
    2021)."""
    sampling_ratio: Probability = 0.75
    """sampler: inputs that are replaced, as a share of the tokens that the decoder gets wrong."""
    add_eos: bool = True
    """<eos> is the last token of each utterance."""
    apply_non_blank_embedding: Literal[False] = False


DECODER_CONFS: dict[str, type[SanmDecoderConf]] = {"sanm_decoder": SanmDecoderConf}
PREDICTOR_CONFS: dict[str, type[CifPredictorConf]] = {
    "cif_predictor": CifPredictorConf,
    "paraformer_predictor": ParaformerPredictorConf,
}


def fill_width(config: Config, where: str) -> Config:
    """Fill the width of the predictor, which WeNet requires in the yaml.

    Raises:
        ConfigError: the yaml has another width than that of the encoder.
    """
    predictor = config.predictor_conf
    assert isinstance(predictor, CifPredictorConf), "the family has this section"
    width = config.encoder_conf.output_size
    if predictor.idim not in (None, width):
        raise ConfigError(
            f"{where}: predictor_conf.idim: {predictor.idim}, but encoder_conf.output_size is "
            f"{width}"
        )

    filled = predictor.model_copy(update={"idim": width})
    return config.model_copy(update={"predictor_conf": filled})
