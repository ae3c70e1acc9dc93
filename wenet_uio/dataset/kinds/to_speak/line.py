"""Texts that are to be spoken: NeMo's manifests for hybrid ASR-TTS models, or plain text with one
text a line.

{"text": "ten percent", "tts_text": "10 %", "tts_text_normalized": "ten percent", "speaker": "7",
"duration": 2.5}

`text` is learned. `tts_text_normalized` is spoken, or else `tts_text`, or else `text`. All other
fields are kept.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from wenet_uio.dataset.formats.data_list import KEY, reason_to_skip, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import one_word
from wenet_uio.text.characters import without_mark

SPOKEN = ("tts_text_normalized", "tts_text")
"""Fields with the text that is spoken; the first one that a line has."""


class TtsText(NamedTuple):
    """One line."""

    key: str | None
    """None: the line states no key."""
    text: str
    """What is learned."""
    to_speak: str
    seconds: float | None
    """Longest speech, as the line states; None: the line states no duration."""
    extra: dict[str, Any]
    """All fields but the key, `text` and `duration`."""


def is_manifest(first_line: bytes) -> bool:
    """Tell whether a file is a manifest, by its first line that is not blank; else it is plain
    text.
    """
    return first_line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{")


def parse_tts_text(line: bytes, *, manifest: bool) -> TtsText:
    """Parse a line of a manifest, or of plain text.

    Raises:
        ListError: the line is not UTF-8 or not JSON, a text is missing or blank, or the duration is
            impossible.
    """
    values = values_of(line) if manifest else {"text": _plain(line)}
    if reason := reason_to_skip(values):
        raise ListError(reason)

    key, duration = (
        next((values.pop(name) for name in KEY if name in values), None),
        values.pop("duration", None),
    )
    text = values.pop("text", None)
    spoken = next((name for name in SPOKEN if values.get(name) is not None), "text")
    to_speak = values.get(spoken, text)
    text, to_speak = _checked(text, "text"), _checked(to_speak, spoken)
    if not isinstance(values.get("speaker"), (str, int, type(None))):
        raise ListError(f"speaker must be a string or a number, found {values['speaker']!r}")

    return TtsText(
        None if key is None else one_word(str(key)), text, to_speak, _seconds(duration), values
    )


def _checked(text: Any, name: str) -> str:
    checked = without_mark(text).strip() if isinstance(text, str) else ""
    if not checked:
        raise ListError(f"{name} must be a text, found {text!r}")
    return checked


def _plain(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ListError(
            f"not UTF-8 ({error.reason} at byte {error.start}); convert the file with iconv"
        ) from None


def _seconds(duration: Any) -> float | None:
    """Return a duration in seconds; None if it is not stated."""
    if duration is None:
        return None

    try:
        seconds = float(duration)
    except (TypeError, ValueError):
        seconds = math.nan

    if not 0 < seconds < math.inf:
        raise ListError(f"duration must be seconds, found {duration!r}")

    return seconds
