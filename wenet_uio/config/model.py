"""`decoder_conf`, `ctc_conf`, `cmvn_conf`, `model_conf`. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from wenet_uio.config.base import Section
from wenet_uio.config.encoder import (
    AttentionConf,
    DropoutRate,
    FeedForwardConf,
    NotNegative,
    Positive,
    Probability,
)


class DecoderConf(AttentionConf, FeedForwardConf):
    """Keys of every decoder. Its width is the encoder's output_size."""

    normalize_before: bool = True
    """Layer normalisation before each module (true) or after it (false)."""
    self_attention_dropout_rate: DropoutRate = 0.0
    src_attention_dropout_rate: DropoutRate = 0.0
    tie_word_embedding: bool = False
    """The output layer shares the weights of the embedding."""
    input_layer: Literal["embed", "embed_learnable_pe"] = "embed"
    """embed_learnable_pe: the encodings of 448 positions are learned, as in Whisper."""
    src_attention: Literal[True] = True
    use_output_layer: Literal[True] = True

    @property
    def source(self) -> AttentionConf:
        """Keys of the attention over the encoder frames: with biases, whatever self-attention
        has.
        """
        return AttentionConf(
            attention_heads=self.attention_heads, n_kv_head=self.n_kv_head, head_dim=self.head_dim
        )


class TransformerDecoderConf(DecoderConf):
    """A left-to-right decoder."""

    src_query_bias: bool = True
    """Bias of the queries in the attention over the encoder frames, and of its output."""
    src_key_bias: bool = True
    src_value_bias: bool = True

    @property
    def source(self) -> AttentionConf:
        """Keys of the attention over the encoder frames."""
        return AttentionConf(
            attention_heads=self.attention_heads,
            n_kv_head=self.n_kv_head,
            head_dim=self.head_dim,
            query_bias=self.src_query_bias,
            key_bias=self.src_key_bias,
            value_bias=self.src_value_bias,
        )


class BiTransformerDecoderConf(DecoderConf):
    """Two decoders, left to right and right to left (U2++)."""

    r_num_blocks: Positive = 3
    """Number of blocks of the right-to-left decoder."""


class CtcConf(Section):
    """Keys of the CTC layer."""

    ctc_blank_id: NotNegative = 0


class CmvnConf(Section):
    """Mean and variance statistics of the features."""

    cmvn_file: str | None = None
    is_json_cmvn: bool = True
    """True: JSON of tools/compute_cmvn_stats.py; false: a Kaldi matrix in text format."""


class HybridConf(Section):
    """Keys of every model: each model can also train an attention decoder."""

    stacked_frames: ClassVar[int] = 1
    """Feature frames in one input frame of the encoder."""
    ignore_id: Annotated[int, Field(lt=0)] = -1
    """Label that pads a batch."""
    reverse_weight: Probability = 0.0
    """Weight of the right-to-left decoder in the attention loss."""
    lsm_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Label smoothing."""
    length_normalized_loss: bool = False
    """Attention loss per token instead of per utterance."""


class WhisperConf(HybridConf):
    """Weights of a Whisper with CTC."""

    ctc_weight: Probability = 0.5
    """Weight of the CTC loss; the weight of the attention loss is 1 - ctc_weight."""

    @property
    def attention_weight(self) -> float:
        """Weight of the attention loss."""
        return 1.0 - self.ctc_weight


class CtlConf(WhisperConf):
    """Weights of a model with CTC and attention that also compares frames with chunks to those with
    full context.
    """

    ctl_weight: float = Field(default=1.0, ge=0)
    """Weight of the contrastive loss."""
    n_negatives: NotNegative = 0
    """Other frames to which each frame is compared; 0: no contrastive loss."""
    logit_temp: float = Field(default=0.1, gt=0)
    """Temperature: the similarities (-1 to 1) are divided by it."""


class ModelConf(WhisperConf):
    """Weights of a model with CTC and attention."""

    apply_non_blank_embedding: bool = False
    """The decoder sees only encoder frames whose best CTC label is not blank, in training and
    rescoring."""

    @model_validator(mode="after")
    def _has_ctc_for_its_blanks(self) -> ModelConf:
        if self.apply_non_blank_embedding and self.ctc_weight == 0:
            raise ValueError(
                "apply_non_blank_embedding: CTC finds the blanks, so ctc_weight must be above 0"
            )
        return self


DECODER_CONFS: dict[str, type[DecoderConf]] = {
    "transformer": TransformerDecoderConf,
    "bitransformer": BiTransformerDecoderConf,
}
