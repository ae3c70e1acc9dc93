"""Read STM of NIST, as TED-LIUM has it: who said what from when to when."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from wenet_uio.addons.corpora.timed_texts import TimedText, text_of_file
from wenet_uio.dataset.formats.errors import ListError

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
    for number, line in enumerate(text_of_file(path).splitlines(), 1):
        if not line.strip() or line.startswith(";;"):
            continue

        recording, channel, speaker, start, end, words = _fields(line, f"{path}:{number}")
        text = " ".join(words[1:] if words and LABELS.fullmatch(words[0]) else words)
        if text and text.lower() != LEFT_OUT:
            segments.append(Segment(recording, channel, TimedText(start, end, text, speaker)))

    return segments


def _fields(line: str, place: str) -> tuple[str, str, str, float, float, list[str]]:
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
