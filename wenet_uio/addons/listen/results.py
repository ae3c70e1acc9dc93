"""Results of a transcription: segments, words and tokens, as objects, JSON and subtitles.

Times are in seconds, confidences from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from wenet_uio.addons.listen.tracks import Track
from wenet_uio.search.confidence import rounded_confidence

TAIL = 0.6
"""Most seconds that the sound of a word lasts after its last token. The peaks of CTC come before
the end of the sound: 0.23 s in the mean, 0.57 s at most."""
LONGEST = 6.0
"""Most seconds of speech in a subtitle."""
WIDEST = 80
"""Most characters of a subtitle."""
LEAST = 1.0
"""Shortest display time in seconds, unless the next subtitle starts earlier."""
GAP = 0.2
"""A longer pause between two words, in seconds, ends a subtitle. A pause begins TAIL seconds after
the last token of a word."""
NO_SPEECH = "no_speech"
"""Reason why a text is empty: nobody speaks."""
BROAD = 20
"""Characters. A subtitle may end within a word that has more, if the word is too long."""


@dataclass(frozen=True)
class TranscriptToken:
    """A unit of the model."""

    text: str
    """The unit as in the units file, such as `▁the` or `a`."""
    time: float
    """Middle of the token."""
    confidence: float | None
    """Probability of the token; None: not known."""


@dataclass(frozen=True)
class TranscriptWord:
    """A word, from its first token to the start of the next word or to the end of the segment.

    It ends TAIL seconds after its last token at the latest.
    """

    text: str
    start: float
    end: float
    confidence: float | None
    """Estimate that the word is right, see `word_confidence`; None: not known."""
    tokens: tuple[TranscriptToken, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON, without the tokens."""
        return {
            "word": self.text,
            **_rounded_span(self.start, self.end),
            "confidence": rounded_confidence(self.confidence),
        }


@dataclass(frozen=True)
class TranscriptSegment:
    """The speech between two pauses."""

    start: float
    end: float
    text: str
    words: tuple[TranscriptWord, ...]
    tokens: tuple[TranscriptToken, ...]
    """All tokens, also those that belong to no word, such as a unit for the space."""
    language: str | None = None
    """Code of the language of the prompt; None for models without one."""
    no_speech_probability: float | None = None
    """Estimate that nobody speaks in it; None where speech was not looked for."""
    track: Track | None = None
    """The channel; None for a stream."""

    @property
    def named_text(self) -> str:
        """The text; after the name of the channel, if the recording has other tracks."""
        return self._name_channel(self.text)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON: start, end, text and words; the channel, the language and the
        probability that nobody speaks, if they are known.
        """
        known: dict[str, Any] = {}
        if self.track is not None:
            known["channel"] = self.track.channel
            if self.track.name:
                known["channel_name"] = self.track.name
        if self.language is not None:
            known["language"] = self.language
        if self.no_speech_probability is not None:
            known["no_speech_probability"] = round(self.no_speech_probability, 4)

        words = [word.to_dict() for word in self.words]
        return {**_rounded_span(self.start, self.end), **known, "text": self.text, "words": words}

    def cues(self) -> list[Cue]:
        """Make the subtitles of this segment, with the name of the channel as in `named_text`."""
        cues = cut_cues(self.text, [(word.text, word.start, word.end) for word in self.words])
        return [cue._replace(text=self._name_channel(cue.text)) for cue in cues]

    def _name_channel(self, text: str) -> str:
        return f"[{self.track.name}] {text}" if self.track and self.track.name else text


def added_text(before: TranscriptSegment | None, segment: TranscriptSegment) -> str:
    """Return what a segment adds to the text of a recording: its text, with the name of the channel
    where another one begins.

    Args:
        before: the segment before; None: this is the first.
    """
    if before is None:
        return segment.named_text
    return f" {segment.text if before.track == segment.track else segment.named_text}"


@dataclass(frozen=True)
class Transcript:
    """The text of a recording."""

    segments: tuple[TranscriptSegment, ...]
    seconds: float
    """Length of the recording."""
    reason: str | None = None
    """Why it has no words: NO_SPEECH; None: it has words, or somebody speaks whom the model does not
    understand."""

    @property
    def text(self) -> str:
        """The whole text; segments are separated by a space, and begin with the name of the channel
        where another one begins.
        """
        return "".join(map(added_text, (None, *self.segments), self.segments))

    @property
    def words(self) -> tuple[TranscriptWord, ...]:
        """The words of all segments."""
        return tuple(word for segment in self.segments for word in segment.words)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON: text, seconds and segments with their words; the reason why there
        are no words, if it is known.
        """
        segments = [segment.to_dict() for segment in self.segments]
        known = {} if self.reason is None else {"reason": self.reason}
        return {"text": self.text, "seconds": round(self.seconds, 3), **known, "segments": segments}

    def to_srt(self) -> str:
        """Write the content of an srt file (SubRip)."""
        return "\n".join(srt_lines(self._all_cues()))

    def to_vtt(self) -> str:
        """Write the content of a vtt file (WebVTT)."""
        return "\n".join(vtt_lines(self._all_cues()))

    def _all_cues(self) -> list[Cue]:
        return [cue for segment in self.segments for cue in segment.cues()]


def _rounded_span(start: float, end: float) -> dict[str, float]:
    return {"start": round(start, 3), "end": round(end, 3)}


class Cue(NamedTuple):
    """A subtitle; times are seconds."""

    start: float
    end: float
    text: str


def cut_cues(text: str, words: Sequence[tuple[str, float, float]]) -> list[Cue]:
    """Cut a text between its words.

    A word that is longer than a subtitle may be, such as the whole text of a model without spaces,
    is cut into equal parts. A subtitle begins with a letter or a digit unless the text does not.

    Args:
        words: (text, start, end) of the words of `text`, in order.
    """
    words = [part for word in words for part in _split_word(*word)]
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


def srt_lines(cues: Sequence[Cue]) -> Iterator[str]:
    """Yield the subtitles of an srt file; each is a string of several lines."""
    for number, (start, end, text) in enumerate(_lengthen_cues(cues)):
        yield f"{number + 1}\n{_format_time(start, ',')} --> {_format_time(end, ',')}\n{text}\n"


def vtt_lines(cues: Sequence[Cue]) -> Iterator[str]:
    """Yield the header and the subtitles of a vtt file; each is a string of several lines."""
    yield "WEBVTT\n"
    for start, end, text in _lengthen_cues(cues):
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"{_format_time(start, '.')} --> {_format_time(end, '.')}\n{escaped}\n"


def _split_word(word: str, start: float, end: float) -> Iterator[tuple[str, float, float]]:
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


def _lengthen_cues(cues: Sequence[Cue]) -> Iterator[Cue]:
    """Yield cues in order of their starts, each for LEAST seconds or longer.

    A cue is made longer only until the next one starts. Its words are never cut: cues overlap where
    speakers on two channels interrupt each other.
    """
    in_order = sorted(cues, key=lambda cue: cue.start)
    for number, (start, end, text) in enumerate(in_order):
        next_start = in_order[number + 1].start if number + 1 < len(cues) else float("inf")
        yield Cue(start, max(end, min(start + LEAST, next_start)), text)


def _format_time(seconds: float, point: str) -> str:
    """Format a time as hh:mm:ss and milliseconds."""
    milliseconds = round(max(0.0, seconds) * 1000)
    seconds_of_day, milliseconds = divmod(milliseconds, 1000)
    minutes, whole_seconds = divmod(seconds_of_day, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{whole_seconds:02}{point}{milliseconds:03}"
