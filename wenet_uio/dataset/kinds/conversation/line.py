"""Conversations of NeMo: JSON lines with turns of text and of audio.

{"id": "c0", "conversations": [{"from": "user", "value": "speak to me", "type": "text"},
{"from": "assistant", "value": "a.wav", "duration": 17.1, "type": "audio"}]}
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from wenet_uio.dataset.formats.data_list import values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import one_word
from wenet_uio.text.characters import without_mark

ASSISTANT = "assistant"
"""Role whose turns are the output of a model; the turns of all others are its input, as in NeMo."""


class Turn(NamedTuple):
    """One turn of a conversation."""

    role: str
    """`from`: who speaks."""
    text: str | None
    """None: the turn is audio."""
    audio: str = ""
    """Path or URI, as in the file."""
    start: float = 0.0
    """Seconds."""
    seconds: float | None = None
    """Length of the audio; None if the line does not state it."""


@dataclass(frozen=True)
class Conversation:
    """One line."""

    key: str
    turns: tuple[Turn, ...]
    extra: dict[str, Any]
    """All other fields of the line."""

    def text(self, audio_locator_tag: str) -> str:
        """Return the texts of all turns, with a tag in the place of each audio."""
        return " ".join(
            audio_locator_tag if turn.text is None else turn.text for turn in self.turns
        )


def parse_conversation(line: bytes | str) -> Conversation:
    """Parse one line.

    Raises:
        ListError: not JSON, or a turn lacks a field or has one of another type; callers add file
            and line number.
    """
    values = values_of(line)
    turns = values.pop("conversations", None)
    if not isinstance(turns, list) or not turns:
        raise ListError(f"needs a list of turns under conversations, found {turns!r}")

    key = values.pop("id", None)
    if not isinstance(key, (str, int)):
        raise ListError(f"needs id, a string, found {key!r}")

    return Conversation(
        one_word(str(key)),
        tuple(_turn(number, turn) for number, turn in enumerate(turns, 1)),
        values,
    )


def _turn(number: int, turn: Any) -> Turn:
    """Parse the turn `number` of a conversation, a text or audio."""
    if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
        raise ListError(f"turn {number}: needs a string under value, found {turn!r}")

    role, turn_type = str(turn.get("from", "")), turn.get("type", "text")
    if turn_type == "text":
        return Turn(role, without_mark(turn["value"]).strip())
    if turn_type != "audio":
        raise ListError(f"turn {number}: type is text or audio, found {turn_type!r}")

    return Turn(role, None, turn["value"], *_times(number, turn))


def _times(number: int, turn: dict[str, Any]) -> tuple[float, float | None]:
    """Return start and length of an audio turn in seconds; None if the length is not stated."""
    try:
        start = float(turn.get("offset") or 0.0)
        seconds = None if turn.get("duration") is None else float(turn["duration"])
    except (TypeError, ValueError):
        raise ListError(
            f"turn {number}: offset and duration must be seconds, found {turn!r}"
        ) from None

    if not (0 <= start < math.inf and (seconds is None or 0 < seconds < math.inf)):
        raise ListError(
            f"turn {number}: offset and duration must be seconds, found {start} and {seconds}"
        )

    return start, seconds
