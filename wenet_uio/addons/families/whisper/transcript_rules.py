"""OpenAI's rules for the transcripts of a Whisper: no words where nobody speaks, and other texts where
one is improbable or repeats itself.

Source: Radford et al. 2022, section 4.5, and the options of `transcribe` of the package
openai-whisper.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence

import torch

from wenet_uio.addons.families.whisper.model import Whisper
from wenet_uio.addons.families.whisper.prompts import decoder_prompts, scores_after_sot
from wenet_uio.models.masks import length_mask
from wenet_uio.search.decode import Prompts
from wenet_uio.search.types import DecodeOptions, Hypothesis, NBest

NO_SPEECH = 0.6
"""Probability of the token no_speech above which nobody speaks, if the text is improbable too."""
IMPROBABLE = math.exp(-1.0)
"""A text is improbable if the geometric mean of the probabilities of its tokens and eot is lower."""
REPETITIVE = 2.4
"""A text repeats itself if it has more bytes for each byte of its zlib form."""
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Of the draws, in this order, until a text passes."""
DRAWS = 5
"""Texts that are drawn at a temperature; the most probable one counts."""


def check_transcripts(
    model: Whisper,
    encoded: tuple[torch.Tensor, torch.Tensor],
    options: DecodeOptions,
    nbests: Sequence[NBest],
    detokenize: Callable[[Sequence[int]], str],
) -> list[NBest | None]:
    """Apply the rules to the hypotheses of segments, each alone: its text depends on no other segment.

    Only the mode attention tells how probable a text is. Other modes keep their hypotheses.

    Args:
        encoded: encoder frames (B, T', D) and lengths (B,) of the segments.
        options: of the search.
        nbests: of the segments.
        detokenize: returns the text of tokens.

    Returns:
        The hypotheses of each segment; None: nobody speaks in it.
    """
    checked: list[NBest | None] = []
    for row, nbest in enumerate(nbests):
        rows = slice(row, row + 1)
        segment = encoded[0][rows], encoded[1][rows]
        checked.append(
            _check_segment(model, segment, options.select_utterances(rows), nbest, detokenize)
        )
    return checked


def _check_segment(
    model: Whisper,
    encoded: tuple[torch.Tensor, torch.Tensor],
    options: DecodeOptions,
    nbest: NBest,
    detokenize: Callable[[Sequence[int]], str],
) -> NBest | None:
    """As `check_transcripts`, for one segment (1, T', D)."""

    def repeats(hypothesis: Hypothesis) -> bool:
        return is_repetitive(detokenize(hypothesis.tokens))

    best = nbest[0]
    if best.decoder_confidence is None or not (is_improbable(best) or repeats(best)):
        return nbest
    if is_improbable(best) and no_speech_probability(model, *encoded) > NO_SPEECH:
        return None

    # The first text that passes; without any, the first one that does not repeat itself.
    others = [best]
    for drawn in draw_texts(model, encoded, options):
        if not (is_improbable(drawn) or repeats(drawn)):
            return [drawn]
        others.append(drawn)

    return [next((text for text in others if not repeats(text)), best)]


def is_improbable(hypothesis: Hypothesis) -> bool:
    """Tell whether the decoder gives a text low probabilities; one without tokens is not."""
    confidence = hypothesis.decoder_confidence
    return confidence is not None and confidence < IMPROBABLE


def is_repetitive(text: str) -> bool:
    """Tell whether a text repeats itself, so that it can be compressed well."""
    content = text.encode()
    return len(content) > REPETITIVE * len(zlib.compress(content))


def no_speech_probability(
    model: Whisper, encoder_out: torch.Tensor, lengths: torch.Tensor
) -> float:
    """Return the probability that nobody speaks in a segment (1, T', D): that of no_speech after sot."""
    log_probs = scores_after_sot(model, encoder_out, lengths)  # (1, V)
    return log_probs[0, model.tokens.ids["no_speech"]].exp().item()


def draw_texts(
    model: Whisper, encoded: tuple[torch.Tensor, torch.Tensor], options: DecodeOptions
) -> Iterator[Hypothesis]:
    """Yield a text of a segment (1, T', D) for each of TEMPERATURES; equal calls draw equal texts."""
    prompts = decoder_prompts(model, *encoded, options)
    draw = torch.Generator().manual_seed(0)
    for temperature in TEMPERATURES:
        hypothesis = _draw_text(model, *encoded, prompts, temperature, draw)
        yield prompts.rules.finish(hypothesis) if prompts.rules is not None else hypothesis


def _draw_text(
    model: Whisper,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    prompts: Prompts,
    temperature: float,
    draw: torch.Generator,
) -> Hypothesis:
    """Draw DRAWS texts of a segment (1, T', D) token by token, and return the most probable one."""
    frames, device = encoder_out.size(1), encoder_out.device
    state = model.decoder.start(encoder_out, length_mask(lengths, frames).unsqueeze(1))
    *earlier_tokens, tokens = prompts.tokens.split(1, dim=1)
    for token in earlier_tokens:
        _, state = model.decoder.forward_one_step(state, token)

    # The hypotheses share the prompt, (1, K).
    state = state.reorder(torch.zeros(1, DRAWS, dtype=torch.int64, device=device))
    tokens = tokens.expand(1, DRAWS)
    history = torch.empty(1, DRAWS, 0, dtype=torch.int64, device=device)
    probabilities = torch.empty(1, DRAWS, 0, device=device)  # of the tokens in `history`
    ended = torch.zeros(1, DRAWS, dtype=torch.bool, device=device)

    for _ in range(min(frames, model.decoder.max_tokens or frames) - len(earlier_tokens)):
        log_probs, state = model.decoder.forward_one_step(state, tokens)  # (1, K, V)
        if prompts.rules is not None:
            log_probs = prompts.rules.apply(log_probs, history)
        else:
            log_probs[..., model.eos + 1 :] = -torch.inf  # special tokens are no text

        # On the CPU the draws are the same on every device.
        chances = (log_probs[0] / temperature).softmax(dim=1).cpu()
        drawn = torch.multinomial(chances, 1, generator=draw).view(1, DRAWS).to(device)
        chosen = log_probs.gather(2, drawn.unsqueeze(2)).exp().masked_fill(ended.unsqueeze(2), 1.0)
        probabilities = torch.cat((probabilities, chosen), dim=2)
        tokens = drawn.masked_fill(ended, model.eos)
        history = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        ended |= tokens == model.eos
        if bool(ended.all()):
            break

    scores = probabilities.log().sum(dim=2)  # (1, K)
    counts = (history != model.eos).sum(dim=2)
    means = scores / (counts + 1)  # eos counts
    best = int(means[0].argmax())
    is_text = history[0, best] != model.eos
    return Hypothesis(
        tuple(history[0, best][is_text].tolist()),
        scores[0, best].item(),
        language=prompts.languages[0],
        decoder_confidences=tuple(probabilities[0, best][is_text].tolist()),
        decoder_confidence=means[0, best].exp().item(),
    )
