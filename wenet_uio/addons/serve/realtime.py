"""The dialect of OpenAI's realtime API: sessions that only transcribe (`/v1/realtime`).

A turn of the API is what lies between two commits of the audio, by the client or at a silence.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from wenet_uio.addons.listen.live import END, Final, Partial
from wenet_uio.addons.listen.results import NO_SPEECH
from wenet_uio.addons.serve.dialect import Audio, Clear, Commit, Dialect, Message, Reply, Request
from wenet_uio.addons.serve.g711 import decode_g711
from wenet_uio.addons.serve.messages import (
    RefusedError,
    Start,
    api_error,
    parse_object,
    reason_field,
)
from wenet_uio.addons.serve.realtime_config import (
    LAWS,
    OLDER_FORMATS,
    RealtimeConfig,
    changed_config,
)

UPDATES = ("session.update", "transcription_session.update")
"""Events that change the configuration; the second one is that of older packages."""
APPEND = "input_audio_buffer.append"
COMMIT = "input_audio_buffer.commit"
CLEAR = "input_audio_buffer.clear"
TRANSCRIPTION = "conversation.item.input_audio_transcription"
MOST_ID_CHARACTERS = 512
"""Characters of `event_id` that are sent back in an error."""
_AUDIO = re.compile(r'"audio"\s*:\s*("[^"]*")')
"""The audio of an event. Base64 has no quotes."""


@dataclass
class _Turn:
    """What the client knows of a turn."""

    item_id: str = field(default_factory=lambda: _new_id("item"))
    texts: list[str] = field(default_factory=list)
    """Of the utterances that have ended. Only a turn without turn detection has several."""
    has_speech: bool = False
    """Whether somebody speaks in one of them."""
    shown: str = ""
    """The text of the last utterance, as the deltas tell it."""
    started: bool = False
    """Whether speech_started was sent."""
    committed: bool = False
    """Whether committed was sent."""


class RealtimeDialect(Dialect):
    """Translates the events of one client of the realtime API."""

    forgives = True
    replaceable = ""
    subprotocols = ("realtime",)

    def __init__(self, model: str, silence: float | None) -> None:
        """Prepare the dialect.

        Args:
            model: name of the model.
            silence: seconds of silence that end a turn, if the client names none; None: silence
                ends no turn.
        """
        self._model, self._silence = model, silence
        self._session_id = _new_id("sess")
        self._config = RealtimeConfig()
        """That of the stream."""
        self._next_config, self._next_start = self._config, 0.0
        """They hold from the start of the next stream."""
        self._update = ""
        """Type of the update that waits for its stream."""
        self._event_id: str | None = None
        """That of the last event of the client."""
        self._turn = _Turn()
        self._previous_item: str | None = None
        self._has_audio = False
        """Whether the stream has audio."""
        self._appended = self._stream_start = self._turn_start = 0.0
        """Seconds of audio: all so far; those before the stream; those of the stream before the
        turn."""

    def greet(self) -> list[Message]:
        """As Dialect.greet: the usual configuration."""
        return [_event("session.created", session=self._session_fields())]

    def read(self, content: str | bytes, *, has_stream: bool) -> list[Request]:
        """As Dialect.read: an event."""
        self._event_id = None
        if isinstance(content, bytes):
            raise RefusedError("a binary message: expected JSON; audio is base64 in an event")

        event = parse_event(content)
        if isinstance(event.get("event_id"), str):
            self._event_id = event["event_id"][:MOST_ID_CHARACTERS]

        kind = event.get("type")
        if kind in UPDATES:
            return self._read_update(event, has_stream)
        if kind == APPEND:
            return self._read_audio(event, has_stream)
        if kind == COMMIT:
            return self._read_commit(has_stream)
        if kind == CLEAR:
            return self._read_clear(has_stream)

        expected = ", ".join((*UPDATES, APPEND, COMMIT, CLEAR))
        raise RefusedError(f"type {kind!r:.80}: this server only transcribes; expected {expected}")

    def _read_update(self, event: dict[str, Any], has_stream: bool) -> list[Request]:
        """Begin another stream if the configuration changes."""
        config = changed_config(self._config, event.get("session"))
        if has_stream and config == self._config:
            return [Reply(self._updated(event["type"]))]

        self._update = event["type"]
        return [self._open_stream(config)]

    def _read_audio(self, event: dict[str, Any], has_stream: bool) -> list[Request]:
        """Decode appended audio; the first of a turn opens a stream before it."""
        audio = event.get("audio")
        if not isinstance(audio, str):
            raise RefusedError(f"audio: expected a text in base64, found {audio!r:.40}")

        try:
            data = base64.b64decode(audio, validate=True)
        except ValueError:
            raise RefusedError("audio: expected base64") from None

        if self._config.format in LAWS:
            data = decode_g711(data, LAWS[self._config.format])

        before = [] if has_stream else [self._open_stream(self._config)]
        self._has_audio |= bool(data)
        self._appended += len(data) / 2 / self._config.sample_rate
        return [*before, Audio(data)]

    def _open_stream(self, config: RealtimeConfig) -> Start:
        """Request a stream that begins with the next audio."""
        self._next_config, self._next_start = config, self._appended
        return config.start()

    def _read_commit(self, has_stream: bool) -> list[Request]:
        if not (has_stream and self._has_audio):
            raise RefusedError(
                f"{COMMIT}: the buffer has no audio", code="input_audio_buffer_commit_empty"
            )
        if self._config.detects_turns:  # a silence may have ended the turn, and begun another one
            return [Commit()]
        return [*map(Reply, self._commit_turn()), Commit()]

    def _read_clear(self, has_stream: bool) -> list[Request]:
        self._has_audio = False
        self._turn = _Turn()
        cleared = Reply(_event("input_audio_buffer.cleared"))
        return [Clear(), cleared] if has_stream else [cleared]

    def tell_opened(self, warnings: Sequence[str]) -> list[Message]:
        """As Dialect.tell_opened: the answer to an update, if there was one."""
        self._config = self._next_config
        self._stream_start, self._turn_start = self._next_start, 0.0
        if not self._update:
            return []

        updated = self._updated(self._update)
        self._update = ""
        if warnings:
            updated["warnings"] = list(warnings)
        return [updated]

    def tell_partial(self, event: Partial) -> list[Message]:
        """As Dialect.tell_partial: what the text has more."""
        if not event.texts[0]:
            return []
        return [*self._start_turn(event.start), *self._tell_more(event.texts[0])]

    def tell_final(self, event: Final) -> list[Message]:
        """As Dialect.tell_final: the whole turn, if the utterance ends one."""
        if event.rule == END:
            return self._end_turn(event, self._commit_turn()) if self._has_audio else []
        if not self._config.detects_turns:
            return self._end_utterance(event)
        if not event.texts[0] and not self._turn.started:  # long silence
            return []

        words, end = event.segment.words, event.segment.end
        started = self._start_turn(words[0].start if words else event.segment.start)
        stopped = self._tell_speech("stopped", "audio_end_ms", end)
        return self._end_turn(event, [*started, stopped, *self._commit_turn()])

    def tell_ended(self, warnings: Sequence[str]) -> list[Message]:
        """As Dialect.tell_ended."""
        self._has_audio = False
        return [self._error(RefusedError(warning)) for warning in warnings]

    def tell_refused(self, error: Exception) -> list[Message]:
        """As Dialect.tell_refused: an error; the configuration stays as it was."""
        self._next_config, self._update = self._config, ""
        return [self._error(error)]

    def _error(self, error: Exception) -> Message:
        is_request = isinstance(error, (RefusedError, PermissionError, ValueError))
        status = HTTPStatus.BAD_REQUEST if is_request else HTTPStatus.INTERNAL_SERVER_ERROR
        code = error.code if isinstance(error, RefusedError) else None
        fields = {**api_error(status, str(error)), "code": code, "event_id": self._event_id}
        return _event("error", error=fields)

    def _start_turn(self, seconds: float) -> list[Message]:
        """Tell once that somebody speaks, from `seconds` of the stream on."""
        if self._turn.started or not self._config.detects_turns:
            return []
        self._turn.started = True
        return [self._tell_speech("started", "audio_start_ms", seconds)]

    def _tell_speech(self, change: str, name: str, seconds: float) -> Message:
        milliseconds = round(1000 * (self._stream_start + seconds))
        return _event(
            f"input_audio_buffer.speech_{change}",
            item_id=self._turn.item_id,
            **{name: milliseconds},
        )

    def _tell_more(self, text: str) -> list[Message]:
        """Tell what the text of an utterance has more than the deltas so far.

        Nothing is told of a text that has changed: a delta cannot take words back.
        """
        turn = self._turn
        if not text.startswith(turn.shown) or text == turn.shown:
            return []

        lead = " " if turn.texts and not turn.shown else ""
        delta, turn.shown = lead + text[len(turn.shown) :], text
        return [
            _event(f"{TRANSCRIPTION}.delta", item_id=turn.item_id, content_index=0, delta=delta)
        ]

    def _commit_turn(self) -> list[Message]:
        """Tell once that the audio of the turn is complete."""
        if self._turn.committed:
            return []
        self._turn.committed = True
        return [
            _event(
                "input_audio_buffer.committed",
                item_id=self._turn.item_id,
                previous_item_id=self._previous_item,
            )
        ]

    def _end_utterance(self, event: Final) -> list[Message]:
        """Keep the text of an utterance, and tell what no delta has told of it."""
        text = event.texts[0]
        more = self._tell_more(text)
        if text:
            self._turn.texts.append(text)
        self._turn.has_speech |= event.reason is None
        self._turn.shown = ""
        return more

    def _end_turn(self, event: Final, before: list[Message]) -> list[Message]:
        """Tell the text of a turn after the messages `before`, and begin the next one."""
        more = self._end_utterance(event)
        turn, end = self._turn, event.segment.end
        completed = _event(
            f"{TRANSCRIPTION}.completed",
            item_id=turn.item_id,
            content_index=0,
            transcript=" ".join(turn.texts),
            usage={"type": "duration", "seconds": round(end - self._turn_start, 3)},
            **reason_field(None if turn.has_speech else NO_SPEECH),
        )
        self._turn, self._previous_item, self._turn_start = _Turn(), turn.item_id, end
        return [*before, *more, completed]

    def _updated(self, update: str) -> Message:
        """Answer an update with all of the configuration, in the form of its type."""
        fields = self._older_fields() if update == UPDATES[1] else self._session_fields()
        return _event(f"{update}d", session=fields)

    def _session_fields(self) -> dict[str, Any]:
        """Return the configuration in the form of the API."""
        config = self._config
        audio_format: dict[str, Any] = {"type": config.format}
        if config.format not in LAWS:
            audio_format["rate"] = config.sample_rate

        transcription = {
            "model": self._model,
            "language": config.language,
            "prompt": config.prompt,
            "keywords": list(config.keywords),
        }
        audio_input = {
            "format": audio_format,
            "noise_reduction": None,
            "transcription": transcription,
            "turn_detection": self._turn_detection(),
        }
        return {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "id": self._session_id,
            "audio": {"input": audio_input},
        }

    def _older_fields(self) -> dict[str, Any]:
        """Return the configuration in the form of older packages."""
        config = self._config
        older_names = {name: older for older, name in OLDER_FORMATS.items()}
        return {
            "object": "realtime.transcription_session",
            "id": self._session_id,
            "input_audio_format": older_names[config.format],
            "input_audio_transcription": {
                "model": self._model,
                "language": config.language,
                "prompt": config.prompt,
            },
            "turn_detection": self._turn_detection(),
        }

    def _turn_detection(self) -> dict[str, Any] | None:
        if not self._config.detects_turns:
            return None
        silence = self._config.silence_ms
        if silence is None and self._silence is not None:
            silence = round(1000 * self._silence)
        return {"type": "server_vad", "silence_duration_ms": silence}


def parse_event(text: str) -> dict[str, Any]:
    """Parse an event of a client.

    Its audio is read apart from the rest, which is short: JSON of millions of small values would
    take seconds and much memory.

    Raises:
        RefusedError: it is no JSON object, or too long.
    """
    example = f'{{"type": "{APPEND}"}}'
    found = _AUDIO.search(text)
    if found is None:
        return parse_object(text, example)

    event = parse_object(f'{text[: found.start(1)]}""{text[found.end(1) :]}', example)
    try:
        event["audio"] = json.loads(found[1])
    except ValueError:
        raise RefusedError("audio: expected a text in base64") from None
    return event


def _event(kind: str, **fields: Any) -> Message:
    return {"type": kind, "event_id": _new_id("event"), **fields}


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
