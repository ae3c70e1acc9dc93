"""How the decoder of a whisper starts: with the prompt of language and task."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.addons.families.whisper.timestamps import TimestampRules
from wenet_uio.models.masks import length_mask
from wenet_uio.search.decode import Prompts
from wenet_uio.search.types import DecodeOptions


def decoder_prompts(
    model: Whisper, encoder_out: torch.Tensor, lengths: torch.Tensor, options: DecodeOptions
) -> Prompts:
    """Make the prompts of a batch: tokens of language and task. Languages that are not given are
    detected.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.

    Raises:
        ValueError: the model does not know the language or the task.
    """
    languages = _find_languages(model, encoder_out, lengths, options.language)
    prompts = [
        model.tokens.prompt(language, options.task, timestamps=options.timestamps)
        for language in languages
    ]
    tokens = torch.tensor(prompts, dtype=torch.int64, device=encoder_out.device)
    tokens = tokens.view(len(prompts), -1)  # (B, P), also of an empty batch

    rules = TimestampRules(model.tokens) if options.timestamps else None
    return Prompts(tokens, tuple(languages), rules)


def check_search(model: Whisper, modes: Sequence[str], options: DecodeOptions) -> None:
    """Raise a ValueError if the options ask for timestamps in another mode than attention."""
    others = [mode for mode in modes if mode != "attention"]
    if options.timestamps and others:
        raise ValueError(f"timestamps: only the mode attention has them, found {', '.join(others)}")


def _find_languages(
    model: Whisper,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    stated: str | tuple[str | None, ...] | None,
) -> Sequence[str]:
    """Return the language of each utterance: the stated one, else the detected one.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
        stated: one language for all utterances, or one for each; None: not stated.
    """
    if isinstance(stated, str):
        return [stated] * len(lengths)
    if stated is not None and None not in stated:
        return [language for language in stated if language is not None]

    detected = detect_languages(model, encoder_out, lengths)
    if not stated:
        return detected
    pairs = zip(stated, detected, strict=True)
    return [stated_one or detected_one for stated_one, detected_one in pairs]


def detect_languages(
    model: Whisper, encoder_out: torch.Tensor, lengths: torch.Tensor
) -> Sequence[str]:
    """Return the most probable language of each utterance: after the token sot alone, the decoder
    scores the tokens of the languages.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
    """
    if not model.tokens.multilingual:
        return model.tokens.languages * len(lengths)

    ids = model.tokens.language_ids
    log_probs = scores_after_sot(model, encoder_out, lengths)
    best_languages = log_probs[:, ids.start : ids.stop].argmax(dim=1)  # (B,)
    return [model.tokens.languages[number] for number in best_languages.tolist()]


def scores_after_sot(
    model: Whisper, encoder_out: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Return log-probabilities (B, V) of the token after sot alone: languages, and no_speech.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
    """
    is_frame = length_mask(lengths, encoder_out.size(1)).unsqueeze(1)  # (B, 1, T')
    state = model.decoder.start(encoder_out, is_frame)
    sot = torch.full_like(lengths, model.sos).unsqueeze(1)  # (B, 1)
    log_probs, _ = model.decoder.forward_one_step(state, sot)  # (B, 1, V)
    return log_probs[:, 0]
