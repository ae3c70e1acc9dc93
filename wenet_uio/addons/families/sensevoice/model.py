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
        """Join the parts of the model; `width` is that of the stacked features.

        CMVN is applied to the speech and not to the queries, so it moves from the encoder to this
        module.
        """
        super().__init__(encoder, None, vocabulary, conf)
        encoder.embed.subsampling_rate = SHIFT  # of the encoder together with `inputs`
        cmvn = encoder.global_cmvn
        encoder.global_cmvn = None
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
        """Return the input of the encoder: four queries, then stacked frames of a low rate.

        Args:
            feats: (B, T, F).
            feats_lengths: (B,) frames.
            languages: of each utterance, names in LANGUAGES; empty, or None for an utterance: auto.
            itn: ask for text with inverse normalisation.

        Returns:
            (B, 4 + T', 7 F), and its lengths (B,).

        Raises:
            ValueError: a language is unknown.
        """
        # The last frame of an utterance, or in WeNet of its batch, stands for frames after it.
        ends = feats_lengths
        if not self.encoder.masks_padding:
            ends = torch.full_like(feats_lengths, feats.size(1))
        frames, _ = low_frame_rate(feats, ends)  # (B, T', 7 F)
        if self.global_cmvn is not None:
            frames = self.global_cmvn(frames)

        names = [language or "auto" for language in languages or [None] * len(feats)]
        unknown_names = sorted(set(names) - LANGUAGES.keys())
        if unknown_names:
            raise ValueError(
                f"language {', '.join(unknown_names)}: unknown to this model; known: "
                f"{', '.join(LANGUAGES)}"
            )

        text_form = WITH_ITN if itn else WITHOUT_ITN
        query_ids = [[LANGUAGES[name], EVENT, EMOTION, text_form] for name in names]
        queries = self.embed(torch.tensor(query_ids, device=feats.device))  # (B, 4, 7 F)
        lengths = low_frame_lengths(feats_lengths) + FRAMES
        return torch.cat((queries, frames), dim=1), lengths

    def encode_asked(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        languages: Sequence[str | None],
        *,
        itn: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode features (B, T, F) of lengths (B,) with full context.

        Args:
            languages: of each utterance; None: the model finds it.
            itn: ask for text with inverse normalisation.

        Returns:
            Encoder frames (B, 4 + T', D), those of the four queries first, and their lengths (B,).
        """
        frames, lengths = self.inputs(feats, feats_lengths, languages, itn=itn)
        return self.encoder(frames, lengths)


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> SenseVoice:
    """Build the untrained model that a config describes."""
    assert isinstance(encoder, SanmEncoderWithTp), "the family allows no other encoder"
    assert isinstance(config.model_conf, SenseVoiceConf), "the family has this section"
    return SenseVoice(encoder, vocabulary, config.model_conf, config.encoder_input_dim)


def config_vocabulary(config: Config) -> Vocabulary:
    """Return the size and special labels that a config states; <s> is 1 and </s> is 2 by default."""
    if not config.vocabulary_size:
        return vocabulary_of(config)

    special_tokens = config.tokenizer_conf.special_tokens or {}
    sos = special_tokens.get("<s>", 1)
    eos = special_tokens.get("</s>", 2)
    return Vocabulary(config.vocabulary_size, config.ctc_conf.ctc_blank_id, sos, eos)


def encode_with_queries(
    model: SenseVoice, feats: torch.Tensor, feats_lengths: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode features (B, T, F) of lengths (B,) with the language and form of text that the
    decoding options ask for.
    """
    languages = options.language
    if not isinstance(languages, tuple):  # one language, or None, for all utterances
        languages = (languages,) * len(feats)
    return model.encode_asked(feats, feats_lengths, languages, itn=options.itn)


def check_search(model: SenseVoice, modes: Sequence[str], options: DecodeOptions) -> None:
    """Raise a ValueError if the decoding options ask for chunks, which the model does not have."""
    if options.decoding_chunk_size > 0 or options.simulate_streaming:
        raise ValueError(
            "decoding_chunk_size: a model sensevoice_small decodes with full context only"
        )
