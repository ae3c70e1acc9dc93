"""Tokens with times in a recording: joined over windows, cut into passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from wenet_uio.addons.listen.speech import Segment
from wenet_uio.search.types import TimeSpan

SAME_TIME = 0.2
"""Seconds. Two windows have the same token if its times in them differ by at most this."""


class Token(NamedTuple):
    """A token with its time in the recording."""

    unit: int
    time: float
    """Seconds from the start of the recording to the middle of the token."""
    confidence: float | None
    """None: not known."""
    span: Segment | None = None
    """Where timestamps of the decoder place the text with this token; None without timestamps."""
    language: str | None = None
    """See TranscriptSegment.language."""


class Passage(NamedTuple):
    """The tokens between two pauses."""

    segment: Segment
    tokens: list[Token]


def split_passages(whole: Segment, tokens: Sequence[Token]) -> Iterator[Passage]:
    """Yield one passage with all tokens; with timestamps, one for each span.

    Spans of neighbouring windows may overlap, so each begins after the end of the one before.
    """
    latest = whole.start
    for span, spoken in groupby(tokens, key=lambda token: token.span):
        start, end = span or whole
        start = max(start, latest)
        latest = max(start, end)
        yield Passage(Segment(start, latest), list(spoken))


def span_in_recording(span: TimeSpan, segment: Segment) -> Segment:
    """Turn a span within a segment into times of the recording, at most the end of the segment."""
    end = segment.end if span.end is None else min(segment.start + span.end, segment.end)
    return Segment(min(segment.start + span.start, end), end)


def shift_token(token: Token, seconds: float) -> Token:
    """Return a token that is some seconds later."""
    span = token.span and Segment(token.span.start + seconds, token.span.end + seconds)
    return token._replace(time=token.time + seconds, span=span)


def spread_evenly(units: Sequence[int], segment: Segment) -> list[tuple[int, float]]:
    """Give each unit a time; the times divide the segment into equal parts."""
    step = (segment.end - segment.start) / max(len(units), 1)
    return [(unit, segment.start + step * (index + 0.5)) for index, unit in enumerate(units)]


def join_windows(left: list[Token], right: list[Token], shared: Segment) -> list[Token]:
    """Join the tokens of two windows that overlap in `shared`, without a repeated or a cut token.

    The left window ends, and the right one begins, after a token that both windows have at the same
    time. Of several such tokens the one nearest to the middle of `shared` is taken. Without any,
    the cut is at the middle.
    """
    middle = (shared.start + shared.end) / 2
    overlap_start = sum(token.time < shared.start - SAME_TIME for token in left)
    overlap_end = sum(token.time <= shared.end + SAME_TIME for token in right)
    left_overlap, right_overlap = left[overlap_start:], right[:overlap_end]
    matches = matching_tokens(left_overlap, right_overlap)

    if matches:
        # Both windows have this token, so a seam there neither repeats nor loses a word.
        seam = min(matches, key=lambda match: abs(left_overlap[match.left].time - middle))
        return left[: overlap_start + seam.left + 1] + right[seam.right + 1 :]

    # The windows agree on nothing: cut both at the middle of their overlap.
    first_half = [token for token in left if token.time < middle]
    second_half = [token for token in right if token.time >= middle]
    return first_half + second_half


class TokenMatch(NamedTuple):
    """A token that two windows have: its index in each."""

    left: int
    right: int


def matching_tokens(left: list[Token], right: list[Token]) -> list[TokenMatch]:
    """Find pairs of tokens with the same unit that are nearest in time to each other."""
    if not left or not right:
        return []

    left_times, right_times = [token.time for token in left], [token.time for token in right]
    left_units, right_units = [token.unit for token in left], [token.unit for token in right]
    distance = abs(np.subtract.outer(left_times, right_times))
    differs = np.not_equal.outer(left_units, right_units)
    distance[differs | (distance > SAME_TIME)] = np.inf

    nearest_left = distance == distance.min(axis=0)
    nearest_right = distance == distance.min(axis=1, keepdims=True)
    matches = np.argwhere(nearest_left & nearest_right & (distance < np.inf))
    return [TokenMatch(int(row), int(column)) for row, column in matches]
