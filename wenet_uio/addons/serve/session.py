"""Serve one client of WeNet's WebSocket protocol, from its connection to its end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from aiohttp import WebSocketError, WSCloseCode, WSMessage, WSMsgType, web

from wenet_uio.addons.listen.live import END, Event, Failed, LiveStream, Partial
from wenet_uio.addons.serve import messages
from wenet_uio.addons.serve.connections import Connection, connection_of
from wenet_uio.addons.serve.engine import Engine, Seat, StreamNews
from wenet_uio.addons.serve.messages import LimitError, RefusedError, Start
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import Limits

HEARTBEAT = 20.0
"""Seconds between pings, which keep proxies from closing a quiet connection."""
CLOSING = 5.0
"""Seconds for which the server waits for the client's part of the closing handshake."""
UNSENT = 1 << 14
"""Bytes of results that wait for the network before the server waits for the client."""

log = logging.getLogger(__name__)


class Session:
    """Take the messages of one client, and send the results of its stream.

    Two tasks share a session: `_receive_messages` reads messages, `_send_messages` writes results.
    `_finish_session` ends both.
    """

    def __init__(
        self,
        engine: Engine,
        admit: Callable[[Start], None],
        open_stream: Callable[[Start], tuple[LiveStream, list[str]]],
        ready: dict[str, Any],
        metrics: Metrics,
    ) -> None:
        """Prepare a session.

        Args:
            engine: runs the stream.
            admit: gives the client a place; raises PermissionError or LimitError if it gets none.
            open_stream: returns a stream and warnings; called in a thread of its own.
            ready: the answer to `start`.
            metrics: counters of the server.
        """
        self._engine, self._admit, self._open_stream = engine, admit, open_stream
        self._ready, self._metrics = ready, metrics
        self._seat: Seat | None = None
        self._start = Start()
        self._warnings: list[str] = []
        self._received = self._waiting = 0.0
        """Seconds of audio: all so far, and those that no step has encoded."""
        self._half_sample = b""
        """First byte of a sample whose second byte comes with the next message."""
        self._unsent: deque[dict[str, Any]] = deque()
        self._news, self._encoded = asyncio.Event(), asyncio.Event()
        self._ending = False
        """Whether further audio is ignored."""
        self._finished = False
        """Whether the messages in `_unsent` are the last ones."""
        self._code = WSCloseCode.OK
        self._limits = Limits()

    async def run(self, request: web.Request, limits: Limits) -> web.WebSocketResponse:
        """Serve the client until its stream or its connection ends."""
        self._limits = limits
        # Without compression a small message cannot become a large one.
        socket = Socket(
            max_msg_size=limits.max_message_bytes + 1,  # aiohttp refuses this size
            timeout=CLOSING,
            compress=False,
            writer_limit=UNSENT,
        )
        await socket.prepare(request)
        if request.transport is not None:
            request.transport.set_write_buffer_limits(UNSENT)

        receiving = asyncio.create_task(self._receive_messages(socket))
        pinging = asyncio.create_task(_keep_pinging(socket))
        try:
            await self._send_messages(socket)
            receiving.cancel()
            # The closing handshake reads from the socket; two readers at once are an error.
            await asyncio.wait((receiving,))
            await socket.end(self._code, connection_of(request))
        except asyncio.TimeoutError:
            self._metrics.refused.labels("send_seconds").inc()
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            log.debug("a client vanished")
        finally:
            receiving.cancel()
            pinging.cancel()
            if self._seat is not None:
                self._engine.leave(self._seat)

        return socket

    def stop(self) -> None:
        """End the stream as after the signal `end`, because the server stops."""
        self._code = WSCloseCode.GOING_AWAY
        if self._seat is None:
            self._finish_session()
        else:
            self._end_stream()

    def refuse(self, error: Exception) -> None:
        """Send the reason to the client, then disconnect.

        The text of an unexpected error stays in the log: it may tell a stranger about the server.
        """
        if self._finished:
            return

        is_too_big = isinstance(error, LimitError) and error.reason == "max_message_bytes"
        self._code = WSCloseCode.MESSAGE_TOO_BIG if is_too_big else WSCloseCode.POLICY_VIOLATION
        if isinstance(error, LimitError):
            self._metrics.refused.labels(error.reason).inc()
        elif not isinstance(error, (RefusedError, PermissionError, ValueError)):
            log.error("error: a stream failed", exc_info=error)
            error = RuntimeError("the server failed at this stream")
            self._code = WSCloseCode.INTERNAL_ERROR

        self._unsent.append(messages.stream_failed(str(error)))
        self._finish_session()

    async def _send_messages(self, socket: web.WebSocketResponse) -> None:
        """Send messages until the stream has finished or the client has vanished.

        Raises:
            asyncio.TimeoutError: the client does not read a message within `send_seconds`.
        """
        while not socket.closed:
            while self._unsent:
                text = json.dumps(self._unsent.popleft(), ensure_ascii=False)
                await asyncio.wait_for(socket.send_str(text), self._limits.send_seconds)

            if self._finished:
                return

            self._news.clear()
            await self._news.wait()

    async def _receive_messages(self, socket: web.WebSocketResponse) -> None:
        """Take messages until the stream has finished or the client has vanished."""
        try:
            # Before Python 3.12 a `wait_for` whose message has just come swallows the cancellation
            # that ends this.
            while not self._finished:
                message = await self._next_message(socket)
                if message is None:
                    continue

                if message.type == WSMsgType.TEXT:
                    await self._take_signal(message.data)
                elif message.type == WSMsgType.BINARY:
                    self._take_audio(message.data)
                    await self._wait_for_room()
                else:
                    self._check_end(message.data)
                    break
        except ConnectionError:
            log.debug("a client vanished")
        except Exception as error:  # without an answer, the client would wait forever
            self.refuse(error)
        finally:
            self._finish_session()

    async def _next_message(self, socket: web.WebSocketResponse) -> WSMessage | None:
        """Wait for a message; None: there is none yet, and the client is not idle.

        Raises:
            LimitError: the client is idle.
        """
        idle = None if self._ending else self._limits.idle_seconds
        if self._seat is None:
            idle = min(self._limits.idle_seconds, self._limits.head_seconds)

        try:
            # Pings do not count as messages, so a client that only pings is idle too.
            return await asyncio.wait_for(socket.receive(), idle)
        except asyncio.TimeoutError:
            # A client that waits for its results is not idle.
            if self._ending or self._waiting > 0:
                return None
            raise LimitError("idle_seconds", f"no message for {idle:g} s") from None

    def _check_end(self, error: object) -> None:
        """Look why the messages end.

        Raises:
            LimitError: a message is too large.
        """
        if not isinstance(error, WebSocketError):
            return
        if error.code == WSCloseCode.MESSAGE_TOO_BIG:
            most = self._limits.max_message_bytes
            raise LimitError(
                "max_message_bytes", f"a message may have {most} bytes; send the audio in parts"
            )
        self._metrics.refused.labels("frame").inc()

    async def _take_signal(self, text: str) -> None:
        """Take a signal of the client: start, then end."""
        signal, message = messages.parse_signal(text)
        if signal == "end":
            if self._seat is None:
                raise RefusedError("the signal start comes before the signal end")
            self._end_stream()
        elif self._seat is not None:
            raise RefusedError("a second signal start: connect again for the next stream")
        else:
            start = self._start = messages.parse_start(message)
            self._admit(start)

            self._rate = start.sample_rate or self._ready["sample_rate"]
            self._metrics.streams.inc()

            # Preparing many hot words takes seconds; in this thread, other clients would wait.
            stream, self._warnings = await asyncio.to_thread(self._open_stream, start)
            self._seat = self._engine.open(stream, self._take_news)

    def _take_audio(self, data: bytes) -> None:
        """Take audio of the client: samples of 16 bits, little-endian.

        A message may end inside a sample; its first byte waits for the next message.
        """
        if self._seat is None:
            raise RefusedError("the signal start comes before audio")
        if self._ending:
            return

        data = self._half_sample + data
        whole_bytes = len(data) - len(data) % 2
        data, self._half_sample = data[:whole_bytes], data[whole_bytes:]
        if not data:
            return

        samples = np.frombuffer(data, "<i2").astype(np.int16, copy=False)  # (N,)
        seconds = len(samples) / self._rate
        self._received += seconds
        self._waiting += seconds
        self._metrics.audio.labels("stream").inc(seconds)

        if self._received > self._limits.max_seconds:
            raise LimitError(
                "max_seconds",
                f"a stream may have {self._limits.max_seconds:g} s of audio; connect again",
            )

        self._engine.push(self._seat, samples)

    async def _wait_for_room(self) -> None:
        """Wait until less than `queue_seconds` of audio wait to be encoded.

        Meanwhile nothing is read, so that TCP slows down the client.
        """
        # Many small packets of one client must not keep the others from the event loop.
        await asyncio.sleep(0)
        while self._waiting > self._limits.queue_seconds and not self._finished:
            self._encoded.clear()
            await self._encoded.wait()

    def _take_news(self, news: StreamNews) -> None:
        """Turn news of the stream into messages."""
        self._waiting = news.waiting
        self._encoded.set()
        if self._finished:
            return

        if news.opened:
            fields = {**self._ready, "sample_rate": self._rate}
            self._queue_message(messages.server_ready(**fields, warnings=self._warnings))

        for event in news.events:
            self._take_event(event)

        if news.finished and not self._finished:
            self._end_speech()

    def _take_event(self, event: Event) -> None:
        """Send the client what an event of its stream says."""
        if self._finished:
            return
        if isinstance(event, Failed):
            self.refuse(event.error)
            return

        if isinstance(event, Partial):
            if event.texts[0]:
                self._queue_message(messages.partial_result(event.texts))
            return

        self._metrics.utterances.inc()
        # Long silence ends utterances too; a continuous stream leaves out their empty texts.
        if event.texts[0] or event.rule == END or not self._start.continuous_decoding:
            self._queue_message(messages.final_result(event.segment, event.texts))
        if not self._start.continuous_decoding and event.rule != END:
            self._end_speech()

    def _end_speech(self) -> None:
        warnings = []
        if self._half_sample:
            warnings.append("audio: an odd number of bytes; the last byte is left out")

        self._queue_message(messages.speech_end(warnings))
        self._finish_session()

    def _queue_message(self, message: dict[str, Any]) -> None:
        """Queue a message. A newer partial result replaces one that was not sent yet."""
        last_type = self._unsent[-1].get("type") if self._unsent else None
        if last_type == "partial_result" and message["type"] == "partial_result":
            self._unsent.pop()
        self._unsent.append(message)
        self._news.set()

    def _end_stream(self) -> None:
        if not self._ending and self._seat is not None:
            self._ending = True
            self._engine.end(self._seat)

    def _finish_session(self) -> None:
        self._ending = self._finished = True
        self._news.set()
        self._encoded.set()


class Socket(web.WebSocketResponse):
    """A WebSocket whose client learns why it is closed, also in the middle of a large message."""

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """Close the connection; only `end` does this after a message that is too large.

        aiohttp would close it before a reason could be sent.
        """
        if code == WSCloseCode.MESSAGE_TOO_BIG:
            return False
        return await super().close(code=code, message=message, drain=drain)

    async def end(self, code: int, connection: Connection) -> None:
        """Send the last frame, and close the connection."""
        if code in (WSCloseCode.OK, WSCloseCode.GOING_AWAY):
            await self.close(code=code)
            return

        # A client that is refused may send much more, or frames that cannot be parsed.
        await self.send_frame(code.to_bytes(2, "big"), WSMsgType.CLOSE)
        await connection.linger(CLOSING)


async def _keep_pinging(socket: web.WebSocketResponse) -> None:
    """Ping until the connection is closed.

    Answers are not awaited: a client that is slowed down cannot send any.
    """
    while not socket.closed:
        await asyncio.sleep(HEARTBEAT)
        try:
            await socket.ping()
        except ConnectionError:  # `_receive_messages` sees the lost connection too
            return
