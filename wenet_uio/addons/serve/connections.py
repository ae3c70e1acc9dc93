"""Connections of the server: their number, the time for a request, and which one gives way.

A connection is idle unless it has a request in work or a place as a client. When there are too
many, the one that has been idle longest is closed, so that a crowd of silent sockets keeps nobody
out.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_websocket import WebSocketReader

from wenet_uio.addons.serve.masks import MaskedFrames
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import Limits

KEEPALIVE = 75.0
"""Seconds for which a connection stays open after an answer."""
MOST_UNPROVEN = 1 << 18
"""Bytes of a WebSocket that are read before its signal `start` is accepted; the longest signal has
fewer."""
QUIET = 1.0
"""Seconds without data after which nothing more is expected from a client that was refused."""
SERVER = "wenet_uio"
"""The header `Server`; that of aiohttp has the versions of Python and aiohttp, which tell a stranger
what flaws to try."""
LOOK = 0.05
"""Seconds between two looks for such data."""

log = logging.getLogger(__name__)


class Connection(web.RequestHandler):
    """A connection of a client."""

    def __init__(self, connections: Connections, manager: web.Server) -> None:
        """Prepare a connection; `manager` has the application."""
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=KEEPALIVE,
            # A small compressed body can become a large one. `check_encoding` refuses it.
            auto_decompress=False,
        )
        self._connections = connections
        self._most_bytes: int | None = None
        """Bytes that may still arrive before reading is paused; None: any number."""
        self._reads = 0
        """How often bytes have arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection; another one may be closed for it."""
        super().connection_made(transport)
        self._connections.enter(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop to count the connection."""
        super().connection_lost(exc)
        self._connections.leave(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        super().data_received(data)
        self._reads += 1
        if self._most_bytes is None:
            return

        self._most_bytes -= len(data)
        if self._most_bytes < 0 and self.transport is not None:
            self.transport.pause_reading()

    def set_parser(
        self, parser: WebSocketReader, data_received_cb: Callable[[], None] | None = None
    ) -> None:
        """Give the bytes of the client to the parser of a WebSocket, if its frames are masked."""
        masked: Any = MaskedFrames(parser)
        super().set_parser(masked, data_received_cb)

    def handle_error(self, *args: Any, **options: Any) -> web.StreamResponse:
        """Return the answer to a request that is no HTTP; it does not tell what the server runs."""
        answer = super().handle_error(*args, **options)
        answer.headers["Server"] = SERVER
        return answer

    def distrust(self) -> None:
        """Read at most MOST_UNPROVEN more bytes, and give way to others, until `trust`."""
        self._most_bytes = MOST_UNPROVEN
        self._connections.set_idle(self)

    def trust(self) -> None:
        """Read without limit, and give way to nobody."""
        self._most_bytes = None
        self._connections.set_busy(self)
        if self.transport is not None and not self._reading_paused:
            self.transport.resume_reading()

    async def linger(self, seconds: float) -> None:
        """Ignore what the client still sends, until it closes the connection or is silent; then
        close it, at the latest after `seconds`.

        A socket that is closed with unread bytes resets the connection, and the client loses what
        was sent to it.
        """
        self.close()  # nothing is parsed any more
        self._most_bytes = None
        if self.transport is not None:
            self.transport.resume_reading()

        end = self._loop.time() + seconds
        quiet = 0.0
        while self.transport is not None and not self.transport.is_closing():
            if self._loop.time() > end:
                self.drop()
            elif quiet >= QUIET:
                self.transport.close()
            else:
                reads = self._reads
                await asyncio.sleep(LOOK)
                quiet = quiet + LOOK if self._reads == reads else 0.0

    def drop(self) -> None:
        """Close the connection without an answer."""
        if self.transport is not None:
            self.transport.abort()


class Connections:
    """All connections of the server, used in its event loop."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        """Prepare the count."""
        self._max_connections, self._head_seconds = limits.max_connections, limits.head_seconds
        self._metrics = metrics
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        """Longest idle first."""
        self._timers: dict[Connection, asyncio.TimerHandle] = {}
        """Of the connections that have not sent the head of a request yet."""
        metrics.connections.set_function(lambda: len(self._open))

    def acceptor(self, manager: web.Server) -> Callable[[], Connection]:
        """Return a function that makes a connection, for `loop.create_server`."""
        return lambda: Connection(self, manager)

    def fit_to_system(self) -> None:
        """Let the system give as many files as the connections need, or have fewer of them.

        Without a file for the next connection, a server accepts nobody and fills its log.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = 2 * self._max_connections
        if soft != resource.RLIM_INFINITY and soft < needed:
            soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        if soft != resource.RLIM_INFINITY and soft < needed:
            self._max_connections = max(1, soft // 2)
            log.warning(
                "warning: --max_connections: %d instead of more, because the system allows %d open "
                "files (ulimit -n)",
                self._max_connections,
                soft,
            )

    def enter(self, connection: Connection) -> None:
        """Count a new connection. Where there are too many, close the one that is idle longest."""
        self._open.add(connection)
        self.set_idle(connection)
        self._timers[connection] = asyncio.get_running_loop().call_later(
            self._head_seconds, self._close, connection, "head_seconds"
        )
        if len(self._open) > self._max_connections:
            longest_idle = next(iter(self._idle))
            self._close(longest_idle, "max_connections")

    def leave(self, connection: Connection) -> None:
        """Stop to count a connection."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._stop_timer(connection)

    def set_busy(self, connection: Connection) -> None:
        """Note that a connection has a request in work."""
        self._idle.pop(connection, None)
        self._stop_timer(connection)

    def set_idle(self, connection: Connection) -> None:
        """Note that a connection may give way."""
        if connection in self._open:
            self._idle[connection] = None

    def _close(self, connection: Connection, reason: str) -> None:
        self._metrics.refused.labels(reason).inc()
        # The system closes it later; the next connection must not count it.
        self.leave(connection)
        connection.drop()

    def _stop_timer(self, connection: Connection) -> None:
        if timer := self._timers.pop(connection, None):
            timer.cancel()


def connection_of(request: web.Request) -> Connection:
    """Return the connection of a request."""
    assert isinstance(request.protocol, Connection), "`Connections.acceptor` makes connections"
    return request.protocol
