"""Read texts with times in long recordings: SRT, WebVTT, Praat's TextGrid, NIST's CTM and STM."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import NamedTuple

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.encodings import read_text_file
from wenet_uio.prepare.looking import AUDACITY_LABEL

PAUSE = 0.5
"""Seconds. Words of a CTM or of a tier of words become one utterance up to a pause of this
length."""
LONGEST = 20.0
"""Seconds that an utterance of joined words has at most, unless a single word is longer."""
SILENCES = frozenset({"", "sil", "sp", "<eps>"})
"""Labels of intervals without speech."""
TIME = r"(?:(\d+):)?(\d{1,2}):(\d{2})(?:[,.](\d+))?"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?")
NEARLY_TIMES = re.compile(r".*-->.*|\s*\d+:[\d:,.]+\s*-.*")
"""Lines that would be taken for text if their times are damaged."""
TAG = re.compile(r"<[/\w][^<>]*>|\{\\[^{}]*\}")
"""Marks inside a subtitle: `<i>`, `<c.loud>`, `<00:00:01.000>`, `{\\an8}`."""
VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]+)>")
"""WebVTT's name of the speaker."""
TOKEN = re.compile(
    r'"((?:[^"]|"")*)"|\[[^\[\]]*\]|<exists>|(?<![\w.])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)'
)
"""Texts and numbers of a TextGrid, in its long and its short form; indexes in brackets are
neither."""


Cue = tuple[float, float, list[str]]
"""Start and end in seconds, and the lines of the text."""


@dataclass(frozen=True)
class TimedText:
    """A text between two times of a recording."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    text: str
    speaker: str | None = None


@dataclass(frozen=True)
class Tier:
    """A tier of a TextGrid that has intervals."""

    name: str
    intervals: list[TimedText]
    """Those that are no silence."""

    @property
    def has_words(self) -> bool:
        """Whether each interval is a single word."""
        return all(" " not in interval.text for interval in self.intervals)


def read_subtitles(path: str | Path) -> list[TimedText]:
    """Read the cues of a SRT or WebVTT file.

    Cues without a text are left out, and marks inside texts are removed.

    Raises:
        ListError: a cue ends before it starts, its times are damaged, text is before the first cue,
            or there is no cue.
    """
    lines = read_text_file(path).splitlines()
    is_vtt = bool(lines) and lines[0].startswith("WEBVTT")
    cues = [_plain_cue(*cue, is_vtt) for cue in _read_cues(path, lines, is_vtt)]
    if not cues:
        raise ListError(
            f"{path}: no subtitle in it, such as 00:00:01,000 --> 00:00:02,500 and a text"
        )

    return [cue for cue in cues if cue.text]


def _read_cues(path: str | Path, lines: Sequence[str], is_vtt: bool) -> list[Cue]:
    """Return the start, end and lines of text of each cue.

    A blank line ends a cue of WebVTT, but is part of a text of SRT.
    """
    cues: list[Cue] = []
    is_inside = False
    for number, line in enumerate(lines, 1):
        times = TIMES.fullmatch(line)
        if times:
            texts = cues[-1][2] if is_inside else []
            if texts and texts[-1].isdecimal():
                texts.pop()  # the number of the cue that begins
            cues.append((*_cue_times(times.groups(), f"{path}:{number}"), []))
            is_inside = True
        elif NEARLY_TIMES.fullmatch(line):
            raise ListError(
                f"{path}:{number}: expected times as 00:00:01,000 --> 00:00:02,500, found "
                f"{line[:40]!r}"
            )
        elif is_inside:
            cues[-1][2].append(line.strip())
            is_inside = bool(line) or not is_vtt
        elif line.strip(" \t0123456789") and not is_vtt:
            raise ListError(
                f"{path}:{number}: expected the number or the times of a cue, found {line[:40]!r}"
            )

    return cues


def _cue_times(fields: Sequence[str | None], place: str) -> tuple[float, float]:
    """Return start and end in seconds; the fields are those of TIMES, four for each time."""
    start, end = _time_seconds(fields[:4]), _time_seconds(fields[4:])
    if start > end:
        raise ListError(f"{place}: a cue starts at {start} s and ends at {end} s")
    return start, end


def _time_seconds(fields: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = (field or "0" for field in fields)
    return int(hours) * 3600 + int(minutes) * 60 + float(f"{seconds}.{fraction}")


def _plain_cue(start: float, end: float, texts: Sequence[str], is_vtt: bool) -> TimedText:
    """Return a cue as plain text; only WebVTT has names of speakers and escapes of HTML."""
    text = " ".join(texts)
    voice = VOICE.search(text) if is_vtt else None
    speaker = voice[1].strip() if voice else None
    plain = TAG.sub("", text)
    if is_vtt:
        plain = unescape(plain)

    return TimedText(start, end, " ".join(plain.split()), speaker)


def read_textgrid(path: str | Path) -> list[Tier]:
    """Read the tiers of a TextGrid in its long or short form that have intervals with a text.

    Raises:
        ListError: the file is not a TextGrid, or is cut short.
    """
    text = read_text_file(path)
    if '"TextGrid"' not in text[:200]:
        raise ListError(f"{path}: not a TextGrid of Praat")

    tokens = _textgrid_tokens(text)
    try:
        # "ooTextFile", "TextGrid", xmin, xmax, number of tiers
        header = [next(tokens) for _ in range(5)]
        tiers = [_read_tier(tokens) for _ in range(int(header[4]))]
    except (StopIteration, ValueError, RuntimeError):
        raise ListError(
            f"{path}: a TextGrid that is cut short or damaged; save it again in Praat"
        ) from None

    return [tier for tier in tiers if tier.intervals]


def _textgrid_tokens(text: str) -> Iterator[str]:
    """Yield the texts and numbers of a TextGrid."""
    for match in TOKEN.finditer(text):
        quoted, number = match.groups()
        if number is not None:
            yield number
        elif quoted is not None:
            yield quoted.replace('""', '"')


def _read_tier(tokens: Iterator[str]) -> Tier:
    """Read a tier: its class, name, times and number of rows come before the rows."""
    tier_class, name, _, _, count = (next(tokens) for _ in range(5))
    has_intervals = tier_class == "IntervalTier"
    num_fields = 3 if has_intervals else 2
    rows: list[list[str]] = []
    for _ in range(int(count)):
        rows.append([next(tokens) for _ in range(num_fields)])

    if not has_intervals:
        return Tier(name, [])  # points have no duration

    intervals = []
    for start, end, label in rows:
        text = " ".join(label.split())
        interval = TimedText(float(start), float(end), text)
        if text.lower() not in SILENCES:
            intervals.append(interval)

    return Tier(name, intervals)


def read_labels(path: str | Path) -> list[TimedText]:
    """Read a label track of Audacity, `start<tab>end<tab>text`; points and empty labels are left
    out.

    Raises:
        ListError: a line is no label.
    """
    texts = []
    for number, line in enumerate(read_text_file(path).splitlines(), 1):
        if not line.strip() or line.startswith("\\"):  # frequencies of the label above
            continue

        match = AUDACITY_LABEL.match(line)
        if match is None:
            raise ListError(f"{path}:{number}: expected start, end and text, found {line[:40]!r}")
        start, end = (float(time.replace(",", ".")) for time in match.groups()[:2])
        text = " ".join((match[3] or "").split())
        if end > start and text:
            texts.append(TimedText(start, end, text))

    return texts


def read_ctm(path: str | Path) -> dict[tuple[str, str], list[TimedText]]:
    """Read the words of a CTM by recording and channel, ordered by time.

    A line is `recording channel start duration word`.

    Raises:
        ListError: a line has too few fields, or a time that is no number.
    """
    words: dict[tuple[str, str], list[TimedText]] = {}
    for number, line in enumerate(read_text_file(path).splitlines(), 1):
        fields = line.split()
        if not fields or line.startswith(";;"):
            continue

        try:
            recording, channel, first, length, word = fields[:5]
            start, duration = float(first), float(length)
        except ValueError:
            raise ListError(
                f"{path}:{number}: expected recording channel start duration word, found {line!r}"
            ) from None

        if not (0 <= start < math.inf and 0 <= duration < math.inf):
            raise ListError(f"{path}:{number}: starts at {start} s and lasts {duration} s")

        words_of_channel = words.setdefault((recording, channel), [])
        if word.lower() not in SILENCES:
            words_of_channel.append(TimedText(start, start + duration, word))

    for words_of_channel in words.values():
        words_of_channel.sort(key=lambda word: word.start)

    return words


def join_words(words: Sequence[TimedText]) -> list[TimedText]:
    """Join words, ordered by time, into utterances of at most LONGEST seconds.

    An utterance ends at a pause.
    """
    joined: list[TimedText] = []
    for word in words:
        last = joined[-1] if joined else None
        if last and word.start - last.end < PAUSE and word.end - last.start <= LONGEST:
            joined[-1] = TimedText(last.start, max(last.end, word.end), f"{last.text} {word.text}")
        else:
            joined.append(word)

    return joined


LEFT_OUT = "ignore_time_segment_in_scoring"
"""Text of segments that are no speech to be recognised."""
LABELS = re.compile(r"<>|<[^>]*,[^>]*>")
"""Labels of a segment, such as <o,f0,male>; <unk> is a word."""
FIELDS = 5
"""Recording, channel, speaker, start, end; what follows is the text, with or without labels."""


class Segment(NamedTuple):
    """A line of an STM."""

    recording: str
    channel: str
    turn: TimedText


def read_stm(path: str | Path) -> list[Segment]:
    """Read lines `recording channel speaker start end [<labels>] text`.

    Comments (`;;`), segments without a text and those that are not scored are left out.

    Raises:
        ListError: a line has too few fields, or times that are no span.
    """
    segments = []
    for number, line in enumerate(read_text_file(path).splitlines(), 1):
        if not line.strip() or line.startswith(";;"):
            continue

        recording, channel, speaker, start, end, words = _segment_fields(line, f"{path}:{number}")
        if words and LABELS.fullmatch(words[0]):
            del words[0]
        text = " ".join(words)
        if text and text.lower() != LEFT_OUT:
            segments.append(Segment(recording, channel, TimedText(start, end, text, speaker)))

    return segments


def _segment_fields(line: str, place: str) -> tuple[str, str, str, float, float, list[str]]:
    """Return the fields of a line, and the words behind them."""
    fields = line.split()
    try:
        recording, channel, speaker, first, last = fields[:FIELDS]
        start, end = float(first), float(last)
    except ValueError:
        raise ListError(
            f"{place}: expected recording channel speaker start end text, found {line[:60]!r}"
        ) from None

    if not 0 <= start < end < math.inf:
        raise ListError(f"{place}: starts at {start} s and ends at {end} s")
    return recording, channel, speaker, start, end, fields[FIELDS:]
