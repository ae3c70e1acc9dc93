"""Options of the server, and what one client may use of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wenet_uio.addons.listen.endpoint import WENET_RULES, EndpointRule
from wenet_uio.base.options import values_of


@dataclass(frozen=True)
class Limits:
    """Limits; a refusal names the limit.

    Raises:
        ValueError: a limit is not above 0.
    """

    max_clients: int = 64
    """Most WebSockets at once that have sent `start`, or are realtime sessions, with the token if one is
    needed."""
    max_uploads: int = 8
    """Most recordings that are transcribed or wait at once."""
    max_connections: int = 1000
    """Most connections at once; for one more, the connection that is idle longest is closed."""
    max_message_bytes: int = 16 << 20
    """Largest message of a WebSocket, in bytes."""
    max_upload_bytes: int = 200 << 20
    """Largest recording, in bytes."""
    max_seconds: float = 4 * 3600.0
    """Longest stream or recording, in seconds of audio; of a recording, all channels together."""
    idle_seconds: float = 60.0
    """Seconds without audio before a client that does not wait for the server is disconnected."""
    head_seconds: float = 10.0
    """Seconds for the head of the first request of a connection, and for the signal `start` of a
    WebSocket."""
    upload_seconds: float = 600.0
    """Seconds for an upload as a whole."""
    queue_seconds: float = 30.0
    """Seconds of audio of a stream that may wait; the server reads no more messages of this client
    until some is encoded."""
    send_seconds: float = 20.0
    """Seconds after which a client that accepts no result is disconnected."""
    grace_seconds: float = 30.0
    """Seconds for open utterances after SIGTERM."""
    hung_seconds: float = 60.0
    """Seconds for one step of the streams, or one block of a recording; after more of them `/live`
    says that the server hangs."""

    def __post_init__(self) -> None:
        for name, limit in values_of(Limits, self).items():
            if not limit > 0:
                raise ValueError(f"--{name}: expected above 0, found {limit}")


@dataclass(frozen=True)
class ServeOptions:
    """How the server recognises, and who may use it.

    Raises:
        ValueError: a number is out of range, or an origin has another form.
    """

    transcribing: Mapping[str, Any] = field(default_factory=dict)
    """Fields of TranscribeOptions, for streams and recordings."""
    streaming: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `SpeechRecogniser.live`: chunk_size, left_chunks, partial_mode."""
    endpoints: Mapping[str, EndpointRule] = field(default_factory=lambda: WENET_RULES)
    """Rules that end an utterance of a stream."""
    stream_batch: int = 32
    """Most streams that are encoded together."""
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    """Text of the token file: clients must give a token of it; None: no token is needed."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may use the server; `*`: all."""
    allow_tensors: bool = False
    """Recordings may be arrays of numpy (`.npy`) and tensors of torch."""
    access_log: Literal["off", "text", "json"] = "off"
    """Form of the lines on standard output, one for each request; see docs/how-to/serve.md."""
    drain_seconds: float = 0.0
    """Seconds after SIGTERM in which `/ready` says no and everybody is still served, while a load
    balancer notices."""
    finish_seconds: float = 0.0
    """Seconds after those of `--drain_seconds` in which nobody new is served, and streams end by
    themselves. Streams that are left are ended as by the signal `end`."""

    def __post_init__(self) -> None:
        if self.stream_batch < 1:
            raise ValueError(f"--stream_batch: expected 1 or more, found {self.stream_batch}")
        for name in ("drain_seconds", "finish_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"--{name}: expected 0 or more, found {getattr(self, name)}")

        for origin in self.origins:
            if origin not in ("*", "null") and not re.fullmatch(
                r"[a-z][a-z0-9+.-]*://[^/\s]+", origin
            ):
                raise ValueError(
                    "--allow_origin: expected an origin such as https://example.org, found "
                    f"{origin!r}"
                )
