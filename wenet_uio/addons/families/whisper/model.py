"""Whisper: an ASRModel whose decoder starts with a prompt of language and task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from wenet_uio.addons.families.whisper import WHISPER
from wenet_uio.addons.families.whisper.silence import SilenceEncoder, Window, training_window
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
from wenet_uio.models.layered_encoder import LayeredEncoder
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
        window: Window | None = None,
    ) -> None:
        """Join the parts of the model.

        Args:
            tokens: the special tokens of the model.
            languages: codes of the languages that training utterances without a field `lang` may
                have.
            window: what the encoder hears, if training utterances lack the silence behind them.
        """
        super().__init__(encoder, decoder, vocabulary, conf, weights)
        self.tokens = tokens
        self.languages = languages if tokens.multilingual else tokens.languages
        self.window = window
        if window is not None:
            assert isinstance(encoder, LayeredEncoder), "training_window checks it"
            self.training_encoder = SilenceEncoder(encoder, window)

    def prompts(
        self, texts: Sequence[str], fields: Sequence[Mapping[str, Any]], keys: Sequence[str] = ()
    ) -> torch.Tensor:
        """Return the prompts of training utterances (B, P): tokens of language and task.

        Args:
            texts: their transcripts.
            fields: other fields of the list: `lang` such as `en`, and `task`; also by NeMo's names.
            keys: their keys, for errors.

        Raises:
            ValueError: the model does not know a language or a task.
        """
        prompts = []
        for number, (text, text_fields) in enumerate(zip(texts, fields, strict=True)):
            language, task = requested_prompt(text_fields, self.tokens.languages)
            try:
                language = language or self._guess_language(text)
                prompts.append(self.tokens.prompt(language, task))
            except ValueError as error:
                message = f"{keys[number]}: {error}" if keys else str(error)
                raise ValueError(message) from None

        return torch.tensor(prompts).to(self.ctc.ctc_lo.weight.device, non_blocking=True)

    def input_lengths(self, feats_lengths: torch.Tensor) -> torch.Tensor:
        """Return the lengths (B,) of training utterances, with the frames of silence that are kept."""
        if self.window is None:
            return feats_lengths
        return 2 * self.window.kept_frames(feats_lengths)

    def memory_mask(self, lengths: torch.Tensor, size: int) -> torch.Tensor:
        """As of ASRModel; frames of the silence count as often as those that they stand for."""
        if self.window is None:
            return super().memory_mask(lengths, size)
        return self.window.log_weights(lengths, size)

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

    def _guess_language(self, text: str) -> str:
        """Return the language of a training text by its letters; warn once that this is a guess."""
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
    """Build the untrained model that a config describes.

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
    return Whisper(
        encoder,
        decoder,
        vocabulary,
        config.model_conf,
        tokens,
        languages,
        weights,
        training_window(config, encoder),
    )


def config_vocabulary(config: Config) -> Vocabulary:
    """Return the size and special labels of a config; those of OpenAI's where it states none."""
    ids = WhisperTokens.of(config.tokenizer_conf).ids
    size = config.vocabulary_size or ids["timestamp_begin"] + TIMESTAMPS
    return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids["sot"], ids["eot"])
