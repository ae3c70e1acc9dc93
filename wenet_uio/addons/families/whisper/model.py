"""Whisper: an ASRModel whose decoder starts with a prompt of language and task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from wenet_uio.addons.families.whisper import WHISPER
from wenet_uio.addons.families.whisper.tokens import (
    TIMESTAMPS,
    WhisperTokens,
    requested_prompt,
    text_language,
)
from wenet_uio.base.messages import warn_once
from wenet_uio.config import Config
from wenet_uio.config.model import CtcAttentionConf
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_decoder
from wenet_uio.models.decoder import TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.losses import LossWeights
from wenet_uio.models.speech_model import Vocabulary


class Whisper(ASRModel):
    """Whisper (Radford et al. 2022), trained with CTC too if ctc_weight is above 0, as in WeNet."""

    family = WHISPER
    decoder: TransformerDecoder

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder,
        vocabulary: Vocabulary,
        conf: CtcAttentionConf,
        tokens: WhisperTokens,
        languages: Sequence[str],
        weights: LossWeights = LossWeights(),  # noqa: B008 - frozen
    ) -> None:
        """As ASRModel; `languages` are those of training utterances without a field `lang`, see
        `text_language`.
        """
        super().__init__(encoder, decoder, vocabulary, conf, weights)
        self.tokens = tokens
        self.languages = languages if tokens.multilingual else tokens.languages

    def prompts(
        self, texts: Sequence[str], fields: Sequence[Mapping[str, Any]], keys: Sequence[str] = ()
    ) -> torch.Tensor:
        """Return the prompts of training utterances (B, P).

        Args:
            texts: their transcripts.
            fields: other fields of the list: `lang` such as `en`, and `task`; see `requested_prompt` for
                other names.
            keys: their keys, for errors.

        Raises:
            ValueError: the model does not know a language or a task.
        """
        rows = []
        for number, (text, fields_of_text) in enumerate(zip(texts, fields, strict=True)):
            language, task = requested_prompt(fields_of_text, self.tokens.languages)
            try:
                rows.append(self.tokens.prompt(language or self._language_of(text), task))
            except ValueError as error:
                raise ValueError(f"{keys[number]}: {error}" if keys else str(error)) from None

        return torch.tensor(rows).to(self.ctc.ctc_lo.weight.device, non_blocking=True)

    @property
    def prompt_length(self) -> int:
        """Tokens of the decoder before the text of a training utterance."""
        return len(self.tokens.prompt("en"))

    @property
    def prompt_languages(self) -> tuple[str, ...]:
        """Codes of the languages that a prompt can name."""
        return self.tokens.languages

    @property
    def prompt_tasks(self) -> tuple[str, ...]:
        """Tasks that a prompt can name."""
        return self.tokens.tasks

    def _language_of(self, text: str) -> str:
        """Return the language that `text_language` finds."""
        language = text_language(text, self.languages)
        if len(self.languages) > 1 and text:  # a batch of silence stands for an empty one
            warn_once(
                "utterances without a field `lang` are learned as zh if their text has Chinese "
                "characters, else as en; "
                "state `lang` in the data list, or name their language in "
                "dataset_conf.language_conf.limited_langs"
            )

        return language


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> Whisper:
    """Build an untrained model; see Family.build.

    Raises:
        ValueError: the decoder has a second direction.
    """
    assert isinstance(config.model_conf, CtcAttentionConf), "the family has this section"
    decoder = build_decoder(config, encoder, vocabulary)
    if not isinstance(decoder, TransformerDecoder):
        raise ValueError(f"model whisper needs decoder transformer, found {config.decoder}")

    tokens = WhisperTokens.of(config.tokenizer_conf)
    languages = config.dataset_conf.language_conf.limited_langs
    weights = LossWeights.of(config)
    return Whisper(encoder, decoder, vocabulary, config.model_conf, tokens, languages, weights)


def config_vocabulary(config: Config) -> Vocabulary:
    """Return the vocabulary of the config, which has the special tokens of OpenAI's."""
    ids = WhisperTokens.of(config.tokenizer_conf).ids
    size = config.vocabulary_size or ids["timestamp_begin"] + TIMESTAMPS
    return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids["sot"], ids["eot"])
