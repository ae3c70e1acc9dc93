"""Format passages as subtitles (SubRip)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wenet_uio.search.transcription import Passage, Token, Transcriber

LONGEST = 6.0
"""Most seconds of speech in a subtitle."""
WIDEST = 80
"""Most characters of a subtitle."""
LEAST = 1.0
"""Shortest display time in seconds, unless the next subtitle starts earlier."""
GAP = 0.8
"""A longer pause between two words, in seconds, ends a subtitle."""


def subtitles(transcriber: Transcriber, passages: Iterable[Passage]) -> Iterator[str]:
    """Yield the subtitles of an srt file; each is a string of several lines."""
    cues = [cue for passage in passages for cue in _cues(transcriber, passage.tokens)]
    for number, (start, end, text) in enumerate(cues):
        until = cues[number + 1][0] if number + 1 < len(cues) else float("inf")
        end = min(max(end, start + LEAST), until)
        yield f"{number + 1}\n{_clock(start)} --> {_clock(end)}\n{text}\n"


def _cues(transcriber: Transcriber, tokens: Sequence[Token]) -> Iterator[tuple[float, float, str]]:
    """(start, end, text) of each subtitle of a passage; words are not split."""
    half = transcriber.clock.step / 2
    bounds = [(first, last) for _, first, last in transcriber.tokenizer.words([token.unit for token in tokens])]
    while bounds:
        first = bounds[0][0]
        count = 1
        while count < len(bounds):
            begin, end = bounds[count]
            long = tokens[end - 1].time - tokens[first].time > LONGEST
            pause = tokens[begin].time - tokens[bounds[count - 1][1] - 1].time > GAP
            if long or pause or len(transcriber.text(tokens[first:end])) > WIDEST:
                break
            count += 1
        last = bounds[count - 1][1]
        yield tokens[first].time - half, tokens[last - 1].time + half, transcriber.text(tokens[first:last])
        bounds = bounds[count:]


def _clock(seconds: float) -> str:
    """Format a time as hh:mm:ss,mmm."""
    milliseconds = round(max(0.0, seconds) * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02},{milliseconds % 1000:03}"
