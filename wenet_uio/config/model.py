"""`decoder_conf`, `ctc_conf`, `cmvn_conf`, `model_conf`. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wenet_uio.config.base import Section
from wenet_uio.config.encoder import AttentionConf, DropoutRate, FeedForwardConf, NotNegative, Positive, Probability


class TransformerDecoderConf(AttentionConf, FeedForwardConf):
    """One decoder, left to right. Its width is the encoder's output_size."""

    normalize_before: bool = True
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


class HybridConf(Section):
    """What models with an attention decoder beside something else have."""

    ignore_id: Annotated[int, Field(lt=0)] = -1
    """Pads the labels of a batch."""
    reverse_weight: Probability = 0.0
    """Share of the right-to-left decoder in the attention loss."""
    lsm_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Label smoothing."""
    length_normalized_loss: bool = False
    """Attention loss per token instead of per utterance."""


class ModelConf(HybridConf):
    """CTC and attention."""

    ctc_weight: Probability = 0.5
    """Share of the CTC loss; the attention loss has the rest."""

    @property
    def attention_weight(self) -> float:
        """Share of the attention loss."""
        return 1.0 - self.ctc_weight


DECODER_CONFS: dict[str, type[TransformerDecoderConf]] = {
    "transformer": TransformerDecoderConf,
    "bitransformer": BiTransformerDecoderConf,
}
