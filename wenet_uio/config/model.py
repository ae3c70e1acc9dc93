"""`encoder_conf`, `decoder_conf`, `ctc_conf`, `cmvn_conf`, `model_conf`. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from wenet_uio.config.base import Section

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
DropoutRate = Annotated[float, Field(ge=0.0, lt=1.0)]
Activation = Literal["relu", "swish", "gelu", "tanh", "hardtanh", "selu"]


class AttentionConf(Section):
    """What every stack of attention layers has."""

    attention_heads: Positive = 4
    linear_units: Positive = 2048
    """Width inside the feed-forward module."""
    num_blocks: Positive = 6
    dropout_rate: DropoutRate = 0.1
    positional_dropout_rate: DropoutRate = 0.1
    normalize_before: bool = True
    """Layer normalisation in front of each module (True) or behind it."""
    activation_type: Activation = "relu"
    query_bias: bool = True
    key_bias: bool = True
    value_bias: bool = True
    norm_eps: float = Field(1e-5, gt=0)
    """Epsilon of the layer normalisations."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    use_sdpa: bool = True
    """Read for compatibility: attention always goes through scaled_dot_product_attention."""


class EncoderConf(AttentionConf):
    """What every encoder has."""

    output_size: Positive = 256
    attention_dropout_rate: DropoutRate = 0.0
    input_layer: Literal["conv2d", "conv2d6", "conv2d8", "linear"] = "conv2d"
    """Subsampling by 4, 6, 8 or none."""
    pos_enc_layer_type: Literal["abs_pos", "rel_pos", "no_pos"] = "abs_pos"
    selfattention_layer_type: Literal["selfattn", "rel_selfattn"] = "selfattn"
    static_chunk_size: NotNegative = 0
    """Encoder frames of a chunk in training and decoding; 0: none."""
    use_dynamic_chunk: bool = False
    """Train with a chunk size drawn for each batch."""
    use_dynamic_left_chunk: bool = False
    """Train with a number of left chunks drawn for each batch."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> EncoderConf:
        if self.output_size % self.attention_heads:
            raise ValueError(
                f"output_size {self.output_size} is not divisible by attention_heads {self.attention_heads}"
            )
        if self.output_size % 2 and self.pos_enc_layer_type != "no_pos":
            raise ValueError(f"output_size {self.output_size} is odd: {self.pos_enc_layer_type} needs an even width")
        return self

    @model_validator(mode="after")
    def _chunks_agree(self) -> EncoderConf:
        if self.use_dynamic_chunk and self.static_chunk_size:
            raise ValueError("use_dynamic_chunk and static_chunk_size exclude each other")
        if self.use_dynamic_left_chunk and not self.use_dynamic_chunk:
            raise ValueError("use_dynamic_left_chunk needs use_dynamic_chunk")
        return self


class TransformerEncoderConf(EncoderConf):
    """Vaswani et al. 2017."""


class ConformerEncoderConf(EncoderConf):
    """Gulati et al. 2020."""

    pos_enc_layer_type: Literal["abs_pos", "rel_pos", "no_pos"] = "rel_pos"
    selfattention_layer_type: Literal["selfattn", "rel_selfattn"] = "rel_selfattn"
    activation_type: Activation = "swish"
    macaron_style: bool = True
    """A second feed-forward module, in front of the attention; both count half."""
    use_cnn_module: bool = True
    cnn_module_kernel: Positive = 15
    """Encoder frames."""
    causal: bool = False
    """The convolution sees no future frames: needed for streaming."""
    cnn_module_norm: Literal["batch_norm", "layer_norm"] = "batch_norm"
    conv_bias: bool = True
    conv_norm_eps: float = Field(1e-5, gt=0)

    @model_validator(mode="after")
    def _kernel_is_centred(self) -> ConformerEncoderConf:
        if self.use_cnn_module and not self.causal and self.cnn_module_kernel % 2 == 0:
            raise ValueError(
                f"cnn_module_kernel {self.cnn_module_kernel} is even: without `causal: true` it must be odd"
            )
        return self


class TransformerDecoderConf(AttentionConf):
    """One decoder, left to right. Its width is the encoder's output_size."""

    self_attention_dropout_rate: DropoutRate = 0.0
    src_attention_dropout_rate: DropoutRate = 0.0
    tie_word_embedding: bool = False
    """The output layer shares the weights of the embedding."""


class BiTransformerDecoderConf(TransformerDecoderConf):
    """Two decoders, left to right and right to left (U2++)."""

    r_num_blocks: Positive = 3
    """Blocks of the right-to-left decoder."""


class CtcConf(Section):
    ctc_blank_id: NotNegative = 0


class CmvnConf(Section):
    cmvn_file: str | None = None
    is_json_cmvn: bool = True
    """JSON of tools/compute_cmvn_stats.py, or (False) Kaldi's text matrix."""


class ModelConf(Section):
    ctc_weight: Probability = 0.5
    """Share of the CTC loss; the attention loss has the rest."""
    text_weight: float = Field(1.0, ge=0)
    """Of the decoder's loss on text without audio."""
    ignore_id: Annotated[int, Field(lt=0)] = -1
    """Pads the labels of a batch."""
    reverse_weight: Probability = 0.0
    """Share of the right-to-left decoder in the attention loss."""
    lsm_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Label smoothing."""
    length_normalized_loss: bool = False
    """Attention loss per token instead of per utterance."""


ENCODER_CONFS: dict[str, type[EncoderConf]] = {
    "transformer": TransformerEncoderConf,
    "conformer": ConformerEncoderConf,
}
DECODER_CONFS: dict[str, type[TransformerDecoderConf]] = {
    "transformer": TransformerDecoderConf,
    "bitransformer": BiTransformerDecoderConf,
}
