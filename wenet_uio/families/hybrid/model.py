"""The hybrid model of CTC and attention (Watanabe et al. 2017; U2, Zhang et al. 2020)."""

from __future__ import annotations

from wenet_uio.config import Config
from wenet_uio.config.model import CtcAttentionConf
from wenet_uio.families.hybrid import HYBRID
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_decoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.losses import LossWeights
from wenet_uio.models.speech_model import Vocabulary


class HybridModel(ASRModel):
    """An ASRModel without further parts."""

    family = HYBRID


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> HybridModel:
    """Build an untrained model; see Family.build."""
    assert isinstance(config.model_conf, CtcAttentionConf), "the family has this section"
    decoder = build_decoder(config, encoder, vocabulary)
    return HybridModel(encoder, decoder, vocabulary, config.model_conf, LossWeights.of(config))
