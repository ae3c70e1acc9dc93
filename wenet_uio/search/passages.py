"""Tokens with times in a recording: joined over windows, cut into passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from wenet_uio.search.speech import Segment
from wenet_uio.search.types import TimeSpan

SAME_TIME = 0.2
"""Seconds. If two windows have the same unit at times that differ by at most this, both have the
same token."""


class Token(NamedTuple):
    """A token with its time in the recording."""

    unit: int
    time: float
    """Seconds from the start of the recording to the middle of the token."""
    confidence: float
    span: Segment | None = None
    """Where the timestamps of a whisper place the text with this token; None without timestamps."""
    language: str | None = None
    """See TranscriptSegment.language."""


class Passage(NamedTuple):
    """The tokens between two pauses."""

    segment: Segment
    tokens: list[Token]


def passages_of(whole: Segment, tokens: Sequence[Token]) -> Iterator[Passage]:
    """A passage with the tokens; with timestamps one for each span.

    Spans of neighbouring windows may overlap, so each begins after the end of the one before.
    """
    latest = whole.start
    for span, spoken in groupby(tokens, key=lambda token: token.span):
        start, end = span or whole
        start = max(start, latest)
        latest = max(start, end)
        yield Passage(Segment(start, latest), list(spoken))


def placed(span: TimeSpan, segment: Segment) -> Segment:
    """A span in a segment as a part of the recording; it ends with the segment at the latest."""
    end = segment.end if span.end is None else min(segment.start + span.end, segment.end)
    return Segment(min(segment.start + span.start, end), end)


def evenly(units: Sequence[int], segment: Segment) -> list[tuple[int, float]]:
    """Each unit with a time; the times divide the segment into equal parts."""
    step = (segment.end - segment.start) / max(len(units), 1)
    return [(unit, segment.start + step * (place + 0.5)) for place, unit in enumerate(units)]


def join(left: list[Token], right: list[Token], shared: Segment) -> list[Token]:
    """Join the tokens of two windows that overlap in `shared`, without a repeated or a cut token.

    The left window ends, and the right one begins, after a token that both windows have at the same
    time. Of several such tokens the one nearest to the middle of `shared` is taken. Without any,
    the cut is at the middle.
    """
    middle = (shared.start + shared.end) / 2
    first = sum(token.time < shared.start - SAME_TIME for token in left)
    last = sum(token.time <= shared.end + SAME_TIME for token in right)
    if common := _heard_twice(left[first:], right[:last]):
        here, there = min(common, key=lambda pair: abs(left[first + pair[0]].time - middle))
        return left[: first + here + 1] + right[there + 1 :]
    return [token for token in left if token.time < middle] + [
        token for token in right if token.time >= middle
    ]


def _heard_twice(left: list[Token], right: list[Token]) -> list[tuple[int, int]]:
    """Places (left, right) of tokens with the same unit that are nearest in time to each other."""
    if not left or not right:
        return []
    apart = abs(np.subtract.outer([token.time for token in left], [token.time for token in right]))
    other = np.not_equal.outer([token.unit for token in left], [token.unit for token in right])
    apart[other | (apart > SAME_TIME)] = np.inf
    nearest = (
        (apart == apart.min(axis=0))
        & (apart == apart.min(axis=1, keepdims=True))
        & (apart < np.inf)
    )
    return [(int(here), int(there)) for here, there in np.argwhere(nearest)]
