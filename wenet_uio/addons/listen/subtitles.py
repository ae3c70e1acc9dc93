"""Cut a text with times into subtitles, and format them as srt (SubRip) or vtt (WebVTT)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple

LONGEST = 6.0
"""Most seconds of speech in a subtitle."""
WIDEST = 80
"""Most characters of a subtitle."""
LEAST = 1.0
"""Shortest display time in seconds, unless the next subtitle starts earlier."""
GAP = 0.2
"""A longer pause between two words, in seconds, ends a subtitle. A pause begins TAIL seconds after
the last token of a word, see `results.py`."""
BROAD = 20
"""Characters. A subtitle may end within a word that has more, if the word is too long."""


class Cue(NamedTuple):
    """A subtitle; times are seconds."""

    start: float
    end: float
    text: str


def cues_of(text: str, words: Sequence[tuple[str, float, float]]) -> list[Cue]:
    """Cut a text between its words.

    A word that is longer than a subtitle may be, such as the whole text of a model without spaces,
    is cut into equal parts. A subtitle begins with a letter or a digit unless the text does not.

    Args:
        words: (text, start, end) of the words of `text`, in order.
    """
    words = [part for word in words for part in _parts_of(*word)]
    spans = _character_spans(text, words)
    cues: list[Cue] = []
    first = 0
    while first < len(words):
        first_char, _ = spans[first]
        _, cue_start, cue_end = words[first]
        last = first

        # Add words while the subtitle stays short, narrow and without a long pause.
        for following in range(first + 1, len(words)):
            word, start, end = words[following]
            is_wide = spans[following][1] - first_char > WIDEST
            is_full = is_wide or end - cue_start > LONGEST or start - cue_end > GAP
            if is_full and any(map(str.isalnum, word)):
                break
            last, cue_end = following, end

        cues.append(Cue(cue_start, cue_end, text[first_char : spans[last][1]]))
        first = last + 1

    return cues


def srt(cues: Sequence[Cue]) -> Iterator[str]:
    """Yield the subtitles of an srt file; each is a string of several lines."""
    for number, (start, end, text) in enumerate(_shown(cues)):
        yield f"{number + 1}\n{_clock(start, ',')} --> {_clock(end, ',')}\n{text}\n"


def vtt(cues: Sequence[Cue]) -> Iterator[str]:
    """Yield the header and the subtitles of a vtt file; each is a string of several lines."""
    yield "WEBVTT\n"
    for start, end, text in _shown(cues):
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"{_clock(start, '.')} --> {_clock(end, '.')}\n{escaped}\n"


def _parts_of(word: str, start: float, end: float) -> Iterator[tuple[str, float, float]]:
    """Yield the parts of a word, (text, start, end), none longer than a subtitle; mostly one."""
    count = 1
    if len(word) > BROAD:
        count = max(ceil(len(word) / WIDEST), ceil((end - start) / LONGEST))

    edges = [len(word) * number // count for number in range(count + 1)]
    step = (end - start) / count
    for number, (first, last) in enumerate(pairwise(edges)):
        yield word[first:last], start + number * step, start + (number + 1) * step


def _character_spans(text: str, words: Iterable[tuple[str, float, float]]) -> list[tuple[int, int]]:
    """Return the first character, and one past the last, of each word in the text."""
    spans: list[tuple[int, int]] = []
    end = 0
    for word, _, _ in words:
        # A word that is not in the text (-1) begins where the word before ended.
        start = max(text.find(word, end), end)
        end = start + len(word)
        spans.append((start, end))

    return spans


def _shown(cues: Sequence[Cue]) -> Iterator[Cue]:
    """Yield cues in order of their starts, each for LEAST seconds or longer.

    A cue is made longer only until the next one starts. Its words are never cut: cues overlap where
    speakers on two channels interrupt each other.
    """
    in_order = sorted(cues, key=lambda cue: cue.start)
    for number, (start, end, text) in enumerate(in_order):
        next_start = in_order[number + 1].start if number + 1 < len(cues) else float("inf")
        yield Cue(start, max(end, min(start + LEAST, next_start)), text)


def _clock(seconds: float, point: str) -> str:
    """Format a time as hh:mm:ss and milliseconds."""
    milliseconds = round(max(0.0, seconds) * 1000)
    seconds_of_day, milliseconds = divmod(milliseconds, 1000)
    minutes, whole_seconds = divmod(seconds_of_day, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{whole_seconds:02}{point}{milliseconds:03}"
