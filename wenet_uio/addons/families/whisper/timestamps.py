"""Timestamps of Whisper: OpenAI's rules for them in the search, and the spans of text between
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from wenet_uio.addons.families.whisper.tokens import TIMESTAMP_STEP, WhisperTokens
from wenet_uio.search.types import Hypothesis, TimeSpan

LATEST_START = 1.0
"""Seconds; the first timestamp is not later."""


@dataclass(frozen=True)
class TimestampRules:
    """Limits the next token so that every text stands between two timestamps, which do not
    decrease.

    Source: Radford et al. 2022, and `ApplyTimestampRules` of the package openai-whisper: the first
    token is a timestamp of at most LATEST_START; after the start of a span comes text or the end of
    the utterance; after the end of a span comes the start of the next, or the end of the utterance;
    a span is not empty; and if all timestamps together are more probable than each other token, the
    next token is a timestamp.
    """

    tokens: WhisperTokens

    def apply(self, log_probs: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the tokens that the rules allow; -inf for the others.

        Args:
            log_probs: (B, K, V) of the next token of K hypotheses.
            history: (B, K, U) their tokens after the prompt.
        """
        # Ids: text, eot, other special tokens, timestamps from `begin` on.
        begin, eot = self.tokens.ids["timestamp_begin"], self.tokens.ids["eot"]
        token = torch.arange(log_probs.size(2), device=log_probs.device)  # (V,)
        is_timestamp = token >= begin
        is_special = (token > eot) & ~is_timestamp

        if history.size(2):
            is_banned = is_special | self._ban_disorder(token, history)  # (B, K, V)
        else:
            # The first token is a timestamp.
            latest_start = begin + round(LATEST_START / TIMESTAMP_STEP)
            is_banned = ~is_timestamp | (token > latest_start)  # (V,)

        # If all timestamps together are more probable than each other token, only they remain.
        log_probs = log_probs.masked_fill(is_banned, -torch.inf).log_softmax(dim=2)
        any_timestamp = log_probs[..., begin:].logsumexp(dim=2)  # (B, K)
        best_other = log_probs[..., :begin].amax(dim=2)
        is_excluded = (any_timestamp > best_other).unsqueeze(2) & ~is_timestamp
        return log_probs.masked_fill(is_excluded, -torch.inf).log_softmax(dim=2)

    def finish(self, hypothesis: Hypothesis) -> Hypothesis:
        """Move the timestamps of a hypothesis from its tokens to its spans."""
        return move_timestamps(hypothesis, self.tokens)

    def _ban_disorder(self, token: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Return True for tokens that may not follow: a timestamp in a wrong place or too early, or
        text between two spans.

        Args:
            token: (V,) ids of all tokens.
            history: (B, K, U) tokens before, U >= 1.

        Returns:
            (B, K, V).
        """
        begin, eot = self.tokens.ids["timestamp_begin"], self.tokens.ids["eot"]
        is_timestamp = token >= begin
        was_timestamp = history >= begin
        last_is_timestamp = was_timestamp[..., -1]  # (B, K)
        second_last_is_timestamp = torch.ones_like(last_is_timestamp)  # as if at the start
        if history.size(2) > 1:
            second_last_is_timestamp = was_timestamp[..., -2]

        # A timestamp after a timestamp, or at the start, opens a span; one after text closes it.
        has_opened = (last_is_timestamp & second_last_is_timestamp).unsqueeze(2)  # (B, K, 1)
        has_closed = (last_is_timestamp & ~second_last_is_timestamp).unsqueeze(2)

        # The next span may begin where one ends; else time goes on, so that no span is empty.
        latest = history.masked_fill(~was_timestamp, begin - 1).amax(dim=2, keepdim=True)
        earliest_next = torch.where(has_closed, latest, latest + 1)  # (B, K, 1)

        is_too_early = is_timestamp & (token < earliest_next)
        would_be_empty = has_opened & is_timestamp
        is_text_outside = has_closed & (token < eot)
        return is_too_early | would_be_empty | is_text_outside


class _Mark(NamedTuple):
    """A timestamp among the tokens."""

    seconds: float
    tokens_before: int
    """Text tokens before it."""


def move_timestamps(hypothesis: Hypothesis, tokens: WhisperTokens) -> Hypothesis:
    """Move the timestamps of a hypothesis from its tokens to its spans."""
    begin = tokens.ids["timestamp_begin"]
    text: list[int] = []
    marks: list[_Mark] = []
    confidences = hypothesis.decoder_confidences
    if confidences is not None:
        pairs = zip(hypothesis.tokens, confidences, strict=True)
        confidences = tuple(confidence for token, confidence in pairs if token < begin)

    for token in hypothesis.tokens:
        if token >= begin:
            marks.append(_Mark((token - begin) * TIMESTAMP_STEP, len(text)))
        else:
            text.append(token)

    return replace(
        hypothesis,
        tokens=tuple(text),
        spans=_text_spans(marks, len(text)),
        decoder_confidences=confidences,
    )


def _text_spans(marks: list[_Mark], num_tokens: int) -> tuple[TimeSpan, ...]:
    """Return the spans of text between neighbouring timestamps.

    Text before the first timestamp begins at 0; text after the last one has no end.
    """
    spans = []
    last_seconds, last_tokens = 0.0, 0
    for mark in marks:
        if mark.tokens_before > last_tokens:
            spans.append(TimeSpan(last_seconds, mark.seconds, last_tokens, mark.tokens_before))
        last_seconds, last_tokens = mark.seconds, mark.tokens_before

    if num_tokens > last_tokens:
        spans.append(TimeSpan(last_seconds, None, last_tokens, num_tokens))
    return tuple(spans)
