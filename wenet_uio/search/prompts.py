"""How the attention decoder starts: with sos, or with the prompt of Whisper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wenet_uio.families.whisper.model import Whisper
from wenet_uio.families.whisper.timestamps import TimestampRules
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.masks import length_mask
from wenet_uio.search.types import DecodeOptions


@dataclass(frozen=True)
class Prompts:
    """The first tokens of each utterance of a batch."""

    tokens: torch.Tensor
    """(B, P)."""
    languages: tuple[str, ...] = ()
    """Of each utterance: given or detected; empty if the model has no prompt."""
    rules: TimestampRules | None = None
    """Rules for timestamps, if the text has them."""


def prompts_of(
    model: ASRModel, encoder_out: torch.Tensor, lengths: torch.Tensor, options: DecodeOptions
) -> Prompts:
    """The prompts of a batch: encoder_out (B, T', D), lengths (B,). Languages that are not given
    are detected.

    Raises:
        ValueError: the model does not know the language or the task.
    """
    if not isinstance(model, Whisper):
        return Prompts(torch.full((len(lengths), 1), model.sos, device=encoder_out.device))
    languages = _languages(model, encoder_out, lengths, options.language)
    rows = [
        model.tokens.prompt(language, options.task, timestamps=options.timestamps)
        for language in languages
    ]
    rules = TimestampRules(model.tokens) if options.timestamps else None
    tokens = torch.tensor(rows, dtype=torch.int64, device=encoder_out.device).view(len(rows), -1)
    return Prompts(tokens, tuple(languages), rules)


def _languages(
    model: Whisper,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    given: str | tuple[str | None, ...] | None,
) -> Sequence[str]:
    """The language of each utterance: the one that is given, else the one that is detected."""
    if isinstance(given, str):
        return [given] * len(lengths)
    if given is not None and None not in given:
        return [language for language in given if language is not None]
    found = detect_languages(model, encoder_out, lengths)
    return [
        language or other
        for language, other in zip(given or [None] * len(found), found, strict=True)
    ]


def detect_languages(
    model: Whisper, encoder_out: torch.Tensor, lengths: torch.Tensor
) -> Sequence[str]:
    """The most probable language of each utterance: of the tokens after sot, that of a language
    with most probability.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
    """
    if not model.tokens.multilingual:
        return model.tokens.languages * len(lengths)
    state = model.decoder.start(encoder_out, length_mask(lengths, encoder_out.size(1)).unsqueeze(1))
    log_probs, _ = model.decoder.forward_one_step(
        state, torch.full_like(lengths, model.sos).unsqueeze(1)
    )
    ids = model.tokens.language_ids
    best = log_probs[:, 0, ids.start : ids.stop].argmax(dim=1)
    return [model.tokens.languages[place] for place in best.tolist()]
