"""Cut a text with times into subtitles, and format them as srt (SubRip) or vtt (WebVTT)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

LONGEST = 6.0
"""Most seconds of speech in a subtitle."""
WIDEST = 80
"""Most characters of a subtitle."""
LEAST = 1.0
"""Shortest display time in seconds, unless the next subtitle starts earlier."""
GAP = 0.8
"""A longer pause between two words, in seconds, ends a subtitle."""


class Cue(NamedTuple):
    """A subtitle; times are seconds."""

    start: float
    end: float
    text: str


def cues_of(text: str, words: Sequence[tuple[str, float, float]]) -> list[Cue]:
    """Cut a text between its words.

    Args:
        words: (text, start, end) of the words of `text`, in order.
    """
    places = _places(text, words)
    cues: list[Cue] = []
    first = 0
    while first < len(words):
        last = first
        while last + 1 < len(words):
            _, start, end = words[last + 1]
            wide = places[last + 1][1] - places[first][0] > WIDEST
            if wide or end - words[first][1] > LONGEST or start - words[last][2] > GAP:
                break

            last += 1

        cues.append(Cue(words[first][1], words[last][2], text[places[first][0] : places[last][1]]))
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


def _places(text: str, words: Iterable[tuple[str, float, float]]) -> list[tuple[int, int]]:
    """Return the first character, and one past the last, of each word in the text."""
    places: list[tuple[int, int]] = []
    end = 0
    for word, _, _ in words:
        start = max(text.find(word, end), end)
        end = start + len(word)
        places.append((start, end))

    return places


def _shown(cues: Sequence[Cue]) -> Iterator[Cue]:
    """Let each cue end after LEAST seconds or later, but not after the start of the next."""
    for number, (start, end, text) in enumerate(cues):
        until = cues[number + 1].start if number + 1 < len(cues) else float("inf")
        yield Cue(start, min(max(end, start + LEAST), until), text)


def _clock(seconds: float, point: str) -> str:
    """Format a time as hh:mm:ss and milliseconds."""
    milliseconds = round(max(0.0, seconds) * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02}{point}{milliseconds % 1000:03}"
