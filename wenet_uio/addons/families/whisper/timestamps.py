"""Timestamps of Whisper: OpenAI's rules for them in the search, and the spans of text between
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
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
        begin, eot = self.tokens.ids["timestamp_begin"], self.tokens.ids["eot"]
        token = torch.arange(log_probs.size(2), device=log_probs.device)
        is_timestamp = token >= begin
        latest_start = begin + round(LATEST_START / TIMESTAMP_STEP)
        banned = ((token > eot) & ~is_timestamp).expand(log_probs.shape)

        if history.size(2):
            banned = banned | self._out_of_order(token, history)
        else:
            # The first token is a timestamp.
            banned = banned | ~is_timestamp | (token > latest_start)

        # If all timestamps together are more probable than each other token, only they remain.
        log_probs = log_probs.masked_fill(banned, -torch.inf).log_softmax(dim=2)
        any_timestamp = log_probs[..., begin:].logsumexp(dim=2)
        best_other = log_probs[..., :begin].amax(dim=2)
        only_timestamps = (any_timestamp > best_other).unsqueeze(2) & ~is_timestamp

        return log_probs.masked_fill(only_timestamps, -torch.inf).log_softmax(dim=2)

    def finish(self, hypothesis: Hypothesis) -> Hypothesis:
        """Move the timestamps of a hypothesis from its tokens to its spans."""
        return move_timestamps(hypothesis, self.tokens)

    def _out_of_order(self, place: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Return tokens (B, K, V) that may not follow `history`."""
        begin, eot = self.tokens.ids["timestamp_begin"], self.tokens.ids["eot"]
        stamped = history >= begin

        # A timestamp after a timestamp, or at the start, opens a span; one after text closes it.
        is_before_stamped = torch.ones_like(stamped[..., -1])
        if history.size(2) > 1:
            is_before_stamped = stamped[..., -2]
        opened = (stamped[..., -1] & is_before_stamped).unsqueeze(2)
        closed = (stamped[..., -1] & ~is_before_stamped).unsqueeze(2)

        # The next span may begin where one ends; else time goes on, so that no span is empty.
        latest = history.masked_fill(~stamped, begin - 1).amax(dim=2, keepdim=True)
        too_early = (place >= begin) & (place < torch.where(closed, latest, latest + 1))

        return too_early | (opened & (place >= begin)) | (closed & (place < eot))


class _Mark(NamedTuple):
    """A timestamp among the tokens."""

    seconds: float
    place: int
    """Number of text tokens before it."""


def move_timestamps(hypothesis: Hypothesis, tokens: WhisperTokens) -> Hypothesis:
    """Move the timestamps of a hypothesis from its tokens to its spans."""
    begin = tokens.ids["timestamp_begin"]
    text: list[int] = []
    marks: list[_Mark] = []

    for token in hypothesis.tokens:
        if token >= begin:
            marks.append(_Mark((token - begin) * TIMESTAMP_STEP, len(text)))
        else:
            text.append(token)

    return replace(hypothesis, tokens=tuple(text), spans=tuple(_text_spans(marks, len(text))))


def _text_spans(marks: list[_Mark], count: int) -> Iterable[TimeSpan]:
    """Return the spans with text between neighbouring marks; the last one has no end if the text
    goes on.
    """
    first = marks[0].place if marks else count
    if first:
        yield TimeSpan(0.0, marks[0].seconds if marks else None, 0, first)

    for start, end in pairwise(marks):
        if end.place > start.place:
            yield TimeSpan(start.seconds, end.seconds, start.place, end.place)

    if marks and count > marks[-1].place:
        yield TimeSpan(marks[-1].seconds, None, marks[-1].place, count)
