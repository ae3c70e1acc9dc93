"""The dialect of WeNet's WebSocket protocol: a stream for each connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wenet_uio.addons.listen.live import END, Final, Partial
from wenet_uio.addons.serve import messages
from wenet_uio.addons.serve.dialect import Audio, Dialect, End, Message, Request
from wenet_uio.addons.serve.messages import RefusedError, Start


class WenetDialect(Dialect):
    """Translates the messages of one client of WeNet's protocol."""

    forgives = False
    replaceable = "partial_result"
    subprotocols = ()

    def __init__(self, ready: dict[str, Any]) -> None:
        """Prepare the dialect; `ready` has the fields of `server_ready` that the model gives."""
        self._ready = ready
        self._start = Start()

    def greet(self) -> list[Message]:
        """As Dialect.greet: the client begins."""
        return []

    def read(self, content: str | bytes, *, has_stream: bool) -> list[Request]:
        """As Dialect.read: a signal, or samples."""
        if isinstance(content, bytes):
            if not has_stream:
                raise RefusedError("the signal start comes before audio")
            return [Audio(content)]

        signal, message = messages.parse_signal(content)
        if signal == "end":
            if not has_stream:
                raise RefusedError("the signal start comes before the signal end")
            return [End()]

        if has_stream:
            raise RefusedError("a second signal start: connect again for the next stream")
        self._start = messages.parse_start(message)
        return [self._start]

    def tell_opened(self, warnings: Sequence[str]) -> list[Message]:
        """As Dialect.tell_opened: the answer to `start`."""
        rate = self._start.sample_rate or self._ready["sample_rate"]
        return [messages.server_ready(**{**self._ready, "sample_rate": rate}, warnings=warnings)]

    def tell_partial(self, event: Partial) -> list[Message]:
        """As Dialect.tell_partial."""
        return [messages.partial_result(event.texts)] if event.texts[0] else []

    def tell_final(self, event: Final) -> list[Message]:
        """As Dialect.tell_final: long silence ends utterances too; a continuous stream leaves out
        their empty texts.
        """
        if event.texts[0] or event.rule == END or not self._start.continuous_decoding:
            return [messages.final_result(event.segment, event.texts, event.reason)]
        return []

    def tell_ended(self, warnings: Sequence[str]) -> list[Message]:
        """As Dialect.tell_ended."""
        return [messages.speech_end(warnings)]

    def tell_refused(self, error: Exception) -> list[Message]:
        """As Dialect.tell_refused: the last message."""
        return [messages.stream_failed(str(error), messages.code_of(error))]
