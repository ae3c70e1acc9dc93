"""Results of a transcription: segments, words and tokens.

Times are in seconds, confidences from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wenet_uio.addons.listen.subtitles import Cue, cues_of, srt, vtt
from wenet_uio.addons.listen.tracks import Track


@dataclass(frozen=True)
class TranscriptToken:
    """A unit of the model."""

    text: str
    """The unit as in the units file, such as `▁the` or `a`."""
    time: float
    """Middle of the token."""
    confidence: float


TAIL = 0.6
"""Most seconds that the sound of a word lasts after its last token. The peaks of CTC come before
the end of the sound: 0.23 s in the mean, 0.57 s at most."""


@dataclass(frozen=True)
class TranscriptWord:
    """A word, from its first token to the start of the next word or to the end of the segment.

    It ends TAIL seconds after its last token at the latest.
    """

    text: str
    start: float
    end: float
    confidence: float
    """Mean of the confidences of the tokens."""
    tokens: tuple[TranscriptToken, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON, without the tokens."""
        return {
            "word": self.text,
            **_span(self.start, self.end),
            "confidence": round(self.confidence, 4),
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
        return self._named(self.text)

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
        return {**_span(self.start, self.end), **known, "text": self.text, "words": words}

    def cues(self) -> list[Cue]:
        """Make the subtitles of this segment, with the name of the channel as in `named_text`."""
        cues = cues_of(self.text, [(word.text, word.start, word.end) for word in self.words])
        return [cue._replace(text=self._named(cue.text)) for cue in cues]

    def _named(self, text: str) -> str:
        return f"[{self.track.name}] {text}" if self.track and self.track.name else text


def part_of_text(before: TranscriptSegment | None, segment: TranscriptSegment) -> str:
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

    @property
    def text(self) -> str:
        """The whole text; segments are separated by a space, and begin with the name of the channel
        where another one begins.
        """
        return "".join(map(part_of_text, (None, *self.segments), self.segments))

    @property
    def words(self) -> tuple[TranscriptWord, ...]:
        """The words of all segments."""
        return tuple(word for segment in self.segments for word in segment.words)

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON: text, seconds and segments with their words."""
        segments = [segment.to_dict() for segment in self.segments]
        return {"text": self.text, "seconds": round(self.seconds, 3), "segments": segments}

    def to_srt(self) -> str:
        """Write the content of an srt file (SubRip)."""
        return "\n".join(srt(self._cues()))

    def to_vtt(self) -> str:
        """Write the content of a vtt file (WebVTT)."""
        return "\n".join(vtt(self._cues()))

    def _cues(self) -> list[Cue]:
        return [cue for segment in self.segments for cue in segment.cues()]


def _span(start: float, end: float) -> dict[str, float]:
    return {"start": round(start, 3), "end": round(end, 3)}
