"""The configuration of a session of OpenAI's realtime API that only transcribes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wenet_uio.addons.serve.g711 import RATE as G711_RATE
from wenet_uio.addons.serve.messages import (
    RATES,
    RefusedError,
    Start,
    parse_phrases,
    read_whole_number,
)

USUAL_RATE = 24_000
"""Hz of audio/pcm."""
SILENCES = 1, 60_000
"""Shortest and longest silence that may end a turn, in milliseconds."""
PCM = "audio/pcm"
LAWS = {"audio/pcmu": "mu", "audio/pcma": "a"}
"""{format: law of G.711}."""
OLDER_FORMATS = {"pcm16": PCM, "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
"""Names of the formats in sessions of older packages."""
OLDER_FIELDS = {
    "format": "input_audio_format",
    "transcription": "input_audio_transcription",
    "turn_detection": "turn_detection",
}
"""{field of `audio.input`: field of the session in older packages}."""


@dataclass(frozen=True)
class RealtimeConfig:
    """What a client has chosen."""

    format: str = PCM
    sample_rate: int = USUAL_RATE
    """Hz."""
    detects_turns: bool = True
    """Whether silence ends a turn; else only a commit does."""
    silence_ms: int | None = None
    """Silence after words that ends a turn; None: as the server has it."""
    language: str | None = None
    prompt: str = ""
    keywords: tuple[str, ...] = ()

    def start(self) -> Start:
        """Return how a stream for this client starts."""
        return Start(
            continuous_decoding=True,
            sample_rate=self.sample_rate,
            hot_words=self.keywords,
            prompt=self.prompt,
            language=self.language,
            end_silence=None if self.silence_ms is None else self.silence_ms / 1000,
        )


def changed_config(config: RealtimeConfig, session: Any) -> RealtimeConfig:
    """Return the configuration after the object `session` of an update.

    Fields that are missing do not change. Those that mean nothing here are ignored.

    Raises:
        RefusedError: a field has the wrong type, or a value that this server does not have.
    """
    if not isinstance(session, Mapping):
        raise RefusedError("session: expected an object")
    kind = session.get("type", "transcription")
    if kind != "transcription":
        raise RefusedError(
            f"session.type: this server only transcribes; expected 'transcription', found "
            f"{kind!r:.40}"
        )

    older = {name: session[field] for name, field in OLDER_FIELDS.items() if field in session}
    fields = {**older, **_read_object(_read_object(session, "audio"), "input")}
    if "format" in fields:
        audio_format, rate = _read_format(fields["format"])
        config = replace(config, format=audio_format, sample_rate=rate)

    if "turn_detection" in fields:
        config = _change_turns(config, fields["turn_detection"])

    if "transcription" in fields:
        config = _change_transcription(config, _read_object(fields, "transcription"))

    return config


def _read_format(value: Any) -> tuple[str, int]:
    """Return the format of the audio, and its sample rate in Hz."""
    fields = value if isinstance(value, Mapping) else {"type": value}
    kind = fields.get("type")
    name = OLDER_FORMATS.get(kind, kind) if isinstance(kind, str) else ""
    if name in LAWS:
        return name, G711_RATE
    if name != PCM:
        raise RefusedError(f"format: expected {PCM}, {', '.join(LAWS)}, found {value!r:.60}")
    return name, read_whole_number(fields, "rate", USUAL_RATE, RATES) or USUAL_RATE


def _change_turns(config: RealtimeConfig, value: Any) -> RealtimeConfig:
    """Return the configuration with `turn_detection`: null, or server_vad with its silence."""
    if value is None:
        return replace(config, detects_turns=False, silence_ms=None)

    kind = value.get("type", "server_vad") if isinstance(value, Mapping) else value
    if kind != "server_vad":
        raise RefusedError(f"turn_detection: expected server_vad or null, found {kind!r:.60}")
    silence = read_whole_number(value, "silence_duration_ms", config.silence_ms, SILENCES)
    return replace(config, detects_turns=True, silence_ms=silence)


def _change_transcription(config: RealtimeConfig, fields: Mapping[str, Any]) -> RealtimeConfig:
    return replace(
        config,
        language=_read_text(fields, "language", config.language or "") or None,
        prompt=_read_text(fields, "prompt", config.prompt),
        keywords=parse_phrases(fields.get("keywords", list(config.keywords)) or []),
    )


def _read_object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object; an empty one if it is missing or null."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError(f"{name}: expected an object, found {value!r:.40}")
    return value


def _read_text(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name, default)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RefusedError(f"{name}: expected a text, found {value!r:.40}")
    return value
