"""Serve one client of a WebSocket, from its connection to its end, in either dialect."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
from aiohttp import WebSocketError, WSCloseCode, WSMessage, WSMsgType, web

from wenet_uio.addons.listen.live import END, Event, Failed, LiveStream, Partial
from wenet_uio.addons.serve.connections import Connection, connection_of
from wenet_uio.addons.serve.dialect import (
    Audio,
    Clear,
    Commit,
    Dialect,
    End,
    Message,
    Reply,
    Request,
)
from wenet_uio.addons.serve.engine import Engine, Seat, StreamNews
from wenet_uio.addons.serve.latencies import StreamLatencies
from wenet_uio.addons.serve.messages import LimitError, RefusedError, Start
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import Limits
from wenet_uio.addons.serve.tokens import (
    WRONG_TOKEN_SECONDS,
    Account,
    TokenLimits,
    WrongTokenError,
)
from wenet_uio.addons.serve.visits import Visit, visit_of

HEARTBEAT = 20.0
"""Seconds between pings, which keep proxies from closing a quiet connection."""
CLOSING = 5.0
"""Seconds for which the server waits for the client's part of the closing handshake."""
UNSENT = 1 << 14
"""Bytes of results that wait for the network before the server waits for the client."""
MOST_REPLIES = 100
"""Messages that wait to be sent before no more of the client's are read."""
LEAST_AUDIO = 0.1
"""Seconds of audio that a client sends within `idle_seconds` if it is not idle."""

log = logging.getLogger(__name__)


class Session:
    """Take the messages of one client, and send the results of its streams, one after the other.

    Two tasks share a session: `_receive_messages` reads messages, `_send_messages` writes results.
    `_finish_session` ends both.
    """

    def __init__(
        self,
        engine: Engine,
        dialect: Dialect,
        admit: Callable[[Start], Account],
        open_stream: Callable[[Start], tuple[LiveStream, list[str]]],
        rate: int,
        metrics: Metrics,
    ) -> None:
        """Prepare a session.

        Args:
            engine: runs the streams.
            dialect: translates the messages of the client.
            admit: gives the client a place, and returns the account of its token; raises
                PermissionError or LimitError if it gets none.
            open_stream: returns a stream and warnings; called in a thread of its own.
            rate: sample rate of the model, in Hz.
            metrics: counters of the server.
        """
        self._engine, self._dialect, self._metrics = engine, dialect, metrics
        self._admit, self._open_stream = admit, open_stream
        self._has_place = False
        self._account = Account(TokenLimits())
        self._seat: Seat | None = None
        """The stream; None: audio needs a Start."""
        self._streams = 0
        """Streams so far. News of an earlier stream are ignored."""
        self._start = Start()
        self._rate = self._usual_rate = rate
        self._warnings: list[str] = []
        self._received = self._waiting = 0.0
        """Seconds of audio: all so far, and those that no step has encoded."""
        self._half_sample = b""
        """First byte of a sample whose second byte comes with the next message."""
        self._unsent: deque[Message] = deque()
        self._news, self._progress = asyncio.Event(), asyncio.Event()
        """Set when there is something to send, and when the client may have room again."""
        self._opening = self._committed = False
        """Whether the stream cannot take samples yet; whether it ends, and the session goes on after
        it."""
        self._ending = False
        """Whether further requests are ignored."""
        self._finished = False
        """Whether the messages in `_unsent` are the last ones."""
        self._is_working = False
        """Whether the server does something for the client before it reads the next message."""
        self._quiet, self._counted = 0.0, asyncio.get_running_loop().time()
        """Seconds for which the server has waited for the client, and the time of the event loop up
        to which they are counted."""
        self._code = WSCloseCode.OK
        self._limits, self._visit = Limits(), Visit()
        self._latencies = StreamLatencies(metrics)

    def admit(self, start: Start) -> None:
        """Give the client its place, unless it has one.

        Raises:
            PermissionError, LimitError: it gets none.
        """
        if not self._has_place:
            self._account = self._admit(start)
            self._has_place = True
            self._quiet = 0.0

    async def run(self, request: web.Request, limits: Limits) -> web.WebSocketResponse:
        """Serve the client until its stream or its connection ends."""
        self._limits, self._visit = limits, visit_of(request)
        # Without compression a small message cannot become a large one.
        socket = Socket(
            max_msg_size=limits.max_message_bytes + 1,  # aiohttp refuses this size
            timeout=CLOSING,
            compress=False,
            autoping=False,  # aiohttp would answer many pings without a turn for other clients
            writer_limit=UNSENT,
            protocols=self._dialect.subprotocols,
        )
        await socket.prepare(request)
        if request.transport is not None:
            request.transport.set_write_buffer_limits(UNSENT)

        self._queue_messages(self._dialect.greet())
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
            self._visit.close_code = self._code if self._visit.reason else socket.close_code
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
        self._visit.reason = "refused"
        if isinstance(error, LimitError):
            self._visit.reason = error.reason
            self._metrics.refused.labels(error.reason).inc()
        elif isinstance(error, PermissionError):
            is_wrong = isinstance(error, WrongTokenError)
            self._visit.reason = "wrong_token" if is_wrong else "permission"
            self._metrics.refused.labels(self._visit.reason).inc()
        elif not isinstance(error, (RefusedError, PermissionError, ValueError)):
            self._visit.reason = "failed"
            log.error("error: a stream failed, id %s", self._visit.id, exc_info=error)
            error = RuntimeError("the server failed at this stream")
            self._code = WSCloseCode.INTERNAL_ERROR

        self._queue_messages(self._dialect.tell_refused(error))
        self._finish_session()

    async def _send_messages(self, socket: web.WebSocketResponse) -> None:
        """Send messages until the stream has finished or the client has vanished.

        Raises:
            asyncio.TimeoutError: the client does not read a message within `send_seconds`.
        """
        while not socket.closed:
            while self._unsent:
                text = json.dumps(self._unsent.popleft(), ensure_ascii=False)
                self._progress.set()
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

                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await self._take_message(message.data)
                elif message.type in (WSMsgType.PING, WSMsgType.PONG):
                    await self._answer_ping(message, socket)
                else:
                    self._check_end(message.data)
                    break
        except ConnectionError:
            log.debug("a client vanished")
        except WrongTokenError as error:
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
            self.refuse(error)
        except Exception as error:  # without an answer, the client would wait forever
            self.refuse(error)
        finally:
            self._finish_session()

    async def _next_message(self, socket: web.WebSocketResponse) -> WSMessage | None:
        """Wait for a message; None: there is none yet.

        Raises:
            LimitError: the client is idle.
        """
        limit = self._limits.idle_seconds
        if not self._has_place:
            limit = min(limit, self._limits.head_seconds)
        if self._quiet >= limit and not self._ending:
            raise LimitError("idle_seconds", f"no message for {limit:g} s")

        self._count_quiet()
        seconds_left = limit if self._is_awaited else limit - self._quiet
        try:
            return await asyncio.wait_for(socket.receive(), seconds_left)
        except asyncio.TimeoutError:
            return None
        finally:
            self._count_quiet()

    async def _answer_ping(self, message: WSMessage, socket: web.WebSocketResponse) -> None:
        """Answer a ping, and ignore an answer. Neither counts as a message: a client that only pings
        is idle.

        Raises:
            ConnectionError: the client does not read the answer within `send_seconds`.
        """
        await asyncio.sleep(0)  # many pings of one client must not keep the others waiting
        if message.type is WSMsgType.PING:
            try:
                await asyncio.wait_for(socket.pong(message.data), self._limits.send_seconds)
            except asyncio.TimeoutError:
                raise ConnectionError("the client reads nothing") from None

    def _count_quiet(self) -> None:
        """Count the seconds since the last call, unless the client waited for the server."""
        now = asyncio.get_running_loop().time()
        if not self._is_awaited:
            self._quiet += now - self._counted
        self._counted = now

    @property
    def _is_awaited(self) -> bool:
        """Whether the client waits for the server, not the server for the client."""
        return self._is_working or self._opening or self._waiting > 0 or self._ending

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let the client wait for the server during a block."""
        self._count_quiet()
        self._is_working = True
        try:
            yield
        finally:
            self._count_quiet()
            self._is_working = False

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

    async def _take_message(self, content: str | bytes) -> None:
        """Do what a message of the client requests.

        Raises:
            RefusedError: the message is wrong, and the dialect does not forgive.
            LimitError: a limit is reached.
        """
        try:
            for request in self._dialect.read(content, has_stream=self._seat is not None):
                await self._obey(request)
                await self._wait_for_room()
        except LimitError:
            raise
        except RefusedError as error:
            if not self._dialect.forgives:
                raise
            self._queue_messages(self._dialect.tell_refused(error))
            await self._wait_for_room()

    async def _obey(self, request: Request) -> None:
        """Do what a request says."""
        if self._ending:
            return
        if isinstance(request, Start):
            await self._start_stream(request)
        elif isinstance(request, Audio):
            await self._wait_for_token()
            if not self._ending:
                self._take_audio(request.data)
        elif isinstance(request, Reply):
            self._queue_messages([request.message])
        elif isinstance(request, Commit):
            self._commit_stream()
        elif isinstance(request, Clear):
            self._drop_stream()
        else:
            assert isinstance(request, End)
            self._end_stream()

    async def _start_stream(self, start: Start) -> None:
        """Open a stream for the audio that follows. A stream before it is committed, unless the
        start is refused.
        """
        self.admit(start)

        # Preparing many hot words takes seconds; in this thread, other clients would wait.
        with self._working():
            stream, warnings = await asyncio.to_thread(self._open_stream, start)
        if self._seat is not None:
            self._commit_stream()
            await self._wait_for_room()
            if self._ending:
                return

        self._start, self._warnings = start, warnings
        self._rate = start.sample_rate or self._usual_rate
        self._metrics.streams.inc()
        self._streams += 1
        self._latencies = StreamLatencies(self._metrics)
        self._opening = True
        self._seat = self._engine.open(stream, partial(self._take_news, self._streams))

    def _commit_stream(self) -> None:
        assert self._seat is not None, "the dialect knows whether there is a stream"
        self._committed = True
        self._latencies.end()
        self._engine.end(self._seat)

    def _drop_stream(self) -> None:
        if self._seat is not None:
            self._engine.leave(self._seat)
        self._seat, self._half_sample, self._waiting = None, b"", 0.0

    def _take_audio(self, data: bytes) -> None:
        """Add audio to the stream.

        A message may end inside a sample; its first byte waits for the next message.
        """
        assert self._seat is not None, "the dialect knows whether there is a stream"
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

        # Empty messages, or a sample now and then, must not keep a place for ever.
        credit = self._limits.idle_seconds * seconds / LEAST_AUDIO
        self._quiet = max(0.0, self._quiet - credit)

        if self._received > self._limits.max_seconds:
            raise LimitError(
                "max_seconds",
                f"a stream may have {self._limits.max_seconds:g} s of audio; connect again",
            )

        self._visit.audio_seconds += seconds
        self._latencies.hear()
        self._account.spend(seconds)
        self._engine.push(self._seat, samples)

    async def _wait_for_token(self) -> None:
        """Slow down a client whose token has sent more audio than it may.

        Raises:
            LimitError: it would have to wait for longer than `idle_seconds`.
        """
        self._account.check_seconds(self._limits.idle_seconds)
        if wait := self._account.wait_seconds:
            with self._working():
                await asyncio.sleep(wait)

    async def _wait_for_room(self) -> None:
        """Wait until the stream is open, less than `queue_seconds` of its audio wait to be encoded,
        one that was committed has ended, and the client has taken its messages.

        Meanwhile nothing is read, so that TCP slows down the client.
        """
        # Many small packets of one client must not keep the others from the event loop.
        await asyncio.sleep(0)
        while not self._finished and (
            self._opening
            or self._committed
            or self._waiting > self._limits.queue_seconds
            or len(self._unsent) > MOST_REPLIES
        ):
            self._progress.clear()
            with self._working():
                await self._progress.wait()

    def _take_news(self, number: int, news: StreamNews) -> None:
        """Turn news of a stream into messages."""
        if number != self._streams or self._seat is None:  # the client has dropped this stream
            return

        self._count_quiet()
        self._waiting = news.waiting
        self._progress.set()
        if self._finished:
            return

        if news.opened:
            self._opening = False
            self._queue_messages(self._dialect.tell_opened(self._warnings))

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
            self._latencies.show_partial()
            self._queue_messages(self._dialect.tell_partial(event))
            return

        self._metrics.utterances.inc()
        self._queue_messages(self._dialect.tell_final(event))
        if not self._start.continuous_decoding and event.rule != END:
            self._end_speech()

    def _end_speech(self) -> None:
        """Tell the client that its stream has ended; the session goes on after a commit alone."""
        warnings = []
        if self._half_sample:
            warnings.append("audio: an odd number of bytes; the last byte is left out")

        self._latencies.finish()
        self._queue_messages(self._dialect.tell_ended(warnings))
        if self._committed and not self._ending:
            self._seat, self._half_sample, self._committed = None, b"", False
        else:
            self._finish_session()

    def _queue_messages(self, messages: Sequence[Message]) -> None:
        """Queue messages for the client."""
        for message in messages:
            last_type = self._unsent[-1].get("type") if self._unsent else None
            if message.get("type") == last_type == self._dialect.replaceable:
                self._unsent.pop()
            self._unsent.append(message)
        self._news.set()

    def _end_stream(self) -> None:
        if not self._ending and self._seat is not None:
            self._ending = True
            self._latencies.end()
            self._engine.end(self._seat)

    def _finish_session(self) -> None:
        self._ending = self._finished = True
        self._news.set()
        self._progress.set()


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
