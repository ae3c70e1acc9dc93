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
    """Make the prompts of a batch; languages that are not given are detected. See DecodingRules.prompts.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.

    Raises:
        ValueError: the model does not know the language or the task.
    """
    languages = _spoken_languages(model, encoder_out, lengths, options.language)
    rows = [
        model.tokens.prompt(language, options.task, timestamps=options.timestamps)
        for language in languages
    ]
    rules = TimestampRules(model.tokens) if options.timestamps else None
    tokens = torch.tensor(rows, dtype=torch.int64, device=encoder_out.device).view(len(rows), -1)

    return Prompts(tokens, tuple(languages), rules)


def check_search(model: Whisper, modes: Sequence[str], options: DecodeOptions) -> None:
    """Refuse timestamps in a mode without them; see DecodingRules.check_search.

    Raises:
        ValueError: another mode than attention shall have timestamps.
    """
    others = [mode for mode in modes if mode != "attention"]
    if options.timestamps and others:
        raise ValueError(f"timestamps: only the mode attention has them, found {', '.join(others)}")


def _spoken_languages(
    model: Whisper,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    stated: str | tuple[str | None, ...] | None,
) -> Sequence[str]:
    """Return the language of each utterance: the stated one, else the detected one."""
    if isinstance(stated, str):
        return [stated] * len(lengths)
    if stated is not None and None not in stated:
        return [language for language in stated if language is not None]

    detected = detect_languages(model, encoder_out, lengths)
    pairs = zip(stated or [None] * len(detected), detected, strict=True)
    return [language or detected_language for language, detected_language in pairs]


def detect_languages(
    model: Whisper, encoder_out: torch.Tensor, lengths: torch.Tensor
) -> Sequence[str]:
    """Return the most probable language of each utterance: of the tokens after sot, that of a
    language with most probability.

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
