"""`decoder_conf`, `ctc_conf`, `cmvn_conf`, `model_conf`. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from wenet_uio.config.base import BelowOne, NotNegative, Positive, Probability, Section
from wenet_uio.config.encoder import AttentionConf, DropoutRate, FeedForwardConf


class DecoderConf(AttentionConf, FeedForwardConf):
    """Keys of every decoder. Its width is the encoder's output_size."""

    normalize_before: bool = True
    """Layer normalisation before each module (true) or after it (false)."""
    self_attention_dropout_rate: DropoutRate = 0.0
    src_attention_dropout_rate: DropoutRate = 0.0
    tie_word_embedding: bool = False
    """The output layer shares the weights of the embedding."""
    input_layer: Literal["embed", "embed_learnable_pe"] = "embed"
    """embed_learnable_pe: the encodings of 448 positions are learned."""
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


class ModelKeys(Section):
    """What every family has in `model_conf`.

    A section that extends this class states the keys below itself. Extend CtcAttentionConf or
    HybridConf for an ASRModel, which reads more keys.
    """

    stacked_frames: ClassVar[int] = 1
    """Feature frames in one input frame of the encoder."""
    if TYPE_CHECKING:
        # Each family states these keys itself: with its default, and at its place in a train.yaml.
        ctc_weight: float
        ignore_id: int
        lsm_weight: float
        length_normalized_loss: bool

    @property
    def decoder_weight(self) -> float:
        """Weight of the loss of a decoder that goes from token to token; 0 without such a
        decoder.
        """
        return 0.0


class HybridConf(ModelKeys):
    """Keys of every model that can also train an attention decoder."""

    ignore_id: Annotated[int, Field(lt=0)] = -1
    """Label that pads a batch."""
    reverse_weight: Probability = 0.0
    """Weight of the right-to-left decoder in the attention loss."""
    lsm_weight: BelowOne = 0.0
    """Label smoothing."""
    length_normalized_loss: bool = False
    """Attention loss per token instead of per utterance."""

    @property
    def skips_blanks(self) -> bool:
        """Whether the decoder sees only frames without blank."""
        return False


class CtcAttentionConf(HybridConf):
    """The weights of CTC and attention, whose sum is 1."""

    ctc_weight: Probability = 0.5
    """Weight of the CTC loss; the weight of the attention loss is 1 - ctc_weight."""

    @property
    def decoder_weight(self) -> float:
        """Weight of the attention loss."""
        return 1.0 - self.ctc_weight


DECODER_CONFS: dict[str, type[DecoderConf]] = {
    "transformer": TransformerDecoderConf,
    "bitransformer": BiTransformerDecoderConf,
}
