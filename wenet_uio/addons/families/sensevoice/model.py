"""SenseVoice-small: a CTC model whose encoder sees queries of language, event, emotion and form of
the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from wenet_uio.addons.encoders.sanm.encoder import (
    SHIFT,
    SanmEncoderWithTp,
    low_frame_lengths,
    low_frame_rate,
)
from wenet_uio.addons.families.sensevoice import SENSEVOICE
from wenet_uio.addons.families.sensevoice.conf import SenseVoiceConf
from wenet_uio.config import Config
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.speech_model import SpeechModel, Vocabulary, vocabulary_of
from wenet_uio.search.types import DecodeOptions

LANGUAGES = {"auto": 0, "zh": 3, "en": 4, "yue": 7, "ja": 11, "ko": 12, "nospeech": 13}
"""{language: its query}; auto: the model finds the language."""
EVENT, EMOTION = 1, 2
WITH_ITN, WITHOUT_ITN = 14, 15
"""Queries of the form of the text: with inverse normalisation (digits, punctuation), and words
only."""
QUERIES = 16
FRAMES = 4
"""Frames of queries before those of the speech."""


class SenseVoice(SpeechModel):
    """SenseVoice-small (An et al. 2024, FunAudioLLM). It decodes; WeNet cannot train it, and
    neither can this project.

    Its text begins with the answers to the queries, such as
    `<|zh|><|NEUTRAL|><|Speech|><|withitn|>`.
    """

    family = SENSEVOICE

    def __init__(
        self, encoder: SanmEncoderWithTp, vocabulary: Vocabulary, conf: SenseVoiceConf, width: int
    ) -> None:
        """As ASRModel; `width` is that of the stacked features. The CMVN of the encoder moves to
        this module.
        """
        super().__init__(encoder, None, vocabulary, conf)
        encoder.embed.subsampling_rate = SHIFT  # of the encoder together with `inputs`
        cmvn, encoder.global_cmvn = encoder.global_cmvn, None
        self.global_cmvn = cmvn
        self.embed = nn.Embedding(QUERIES, width)
        self.leading_frames = FRAMES

    def inputs(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        languages: Sequence[str | None] = (),
        *,
        itn: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the input of the encoder, four queries and then frames of low rate, and its lengths.

        Args:
            languages: of each utterance, names in LANGUAGES; empty, or None for an utterance: auto.
            itn: ask for text with inverse normalisation.

        Raises:
            ValueError: a language is unknown.
        """
        # The last frame of an utterance, or in WeNet of its batch, stands for frames after it.
        ends = feats_lengths
        if not self.encoder.masks_padding:
            ends = torch.full_like(feats_lengths, feats.size(1))
        frames, _ = low_frame_rate(feats, ends)
        if self.global_cmvn is not None:
            frames = self.global_cmvn(frames)

        names = [language or "auto" for language in languages] or ["auto"] * len(feats)
        if unknown := sorted(set(names) - LANGUAGES.keys()):
            raise ValueError(
                f"language {', '.join(unknown)}: unknown to this model; known: "
                f"{', '.join(LANGUAGES)}"
            )

        form = WITH_ITN if itn else WITHOUT_ITN
        rows = [[LANGUAGES[name], EVENT, EMOTION, form] for name in names]
        queries = self.embed(torch.tensor(rows, device=feats.device))
        return torch.cat((queries, frames), dim=1), low_frame_lengths(feats_lengths) + FRAMES

    def encode_asked(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        languages: Sequence[str | None],
        *,
        itn: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As ASRModel.encode with full context, and with the queries of `inputs`."""
        return self.encoder(*self.inputs(feats, feats_lengths, languages, itn=itn))


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> SenseVoice:
    """Build an untrained model; see Family.build."""
    assert isinstance(encoder, SanmEncoderWithTp), "the family allows no other encoder"
    assert isinstance(config.model_conf, SenseVoiceConf), "the family has this section"
    return SenseVoice(encoder, vocabulary, config.model_conf, config.encoder_input_dim)


def config_vocabulary(config: Config) -> Vocabulary:
    """Return the vocabulary of the config; <s> and </s> are the labels 1 and 2 unless it says
    another.
    """
    special = config.tokenizer_conf.special_tokens or {}
    if not config.vocabulary_size:
        return vocabulary_of(config)
    ids = (special.get("<s>", 1), special.get("</s>", 2))
    return Vocabulary(config.vocabulary_size, config.ctc_conf.ctc_blank_id, *ids)


def encode_with_queries(
    model: SenseVoice, feats: torch.Tensor, feats_lengths: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode features (B, T, F) of lengths (B,) with the queries that the options ask for; see
    DecodingRules.encode.
    """
    languages = options.language
    if not isinstance(languages, tuple):
        languages = (languages,) * len(feats)
    return model.encode_asked(feats, feats_lengths, languages, itn=options.itn)


def check_search(model: SenseVoice, modes: Sequence[str], options: DecodeOptions) -> None:
    """Refuse chunks; see DecodingRules.check_search.

    Raises:
        ValueError: the options ask for chunks.
    """
    if options.decoding_chunk_size > 0 or options.simulate_streaming:
        raise ValueError(
            "decoding_chunk_size: a model sensevoice_small decodes with full context only"
        )
