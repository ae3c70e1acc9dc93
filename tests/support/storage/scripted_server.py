"""An HTTP server on loopback that answers every request as a script says, down to the bytes on the
wire.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.serve.running_server import running
from tests.support.storage.servers import reset

NAMES = {
    200: "OK",
    206: "Partial Content",
    302: "Found",
    404: "Not Found",
    429: "Too Many Requests",
    503: "Busy",
}


@dataclass(frozen=True)
class Answer:
    """What the server sends for one request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    length: int | None = -1
    """Content-Length: -1 is the true length, None is no such header."""
    end: str = "close"
    """After the body: `close`, `reset`, or `hang` until the server is stopped."""
    raw: bytes | None = None
    """These bytes instead of a whole answer."""
    pause: float = 0.0
    """Seconds between the pieces of the body, of 100 bytes each."""


@dataclass(frozen=True)
class Request:
    """A request as the script sees it."""

    method: str
    path: str
    number: int
    """How many requests of this method came before."""
    start: int | None
    """First byte of the wanted range; None: the whole object is wanted."""
    end: int | None
    """One past the last byte of the wanted range; None: up to the end."""


Script = Callable[[Request], Answer]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.seen, self.stopped, self.lock = (
            script,
            [],
            threading.Event(),
            threading.Lock(),
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """Ignore clients that close the connection early."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Write no log."""

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self) -> None:
        server, start, end = self.server, None, None
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), int(last) + 1 if last else None
        with server.lock:
            number = sum(request.method == self.command for request in server.seen)
            request = Request(self.command, self.path, number, start, end)
            server.seen.append(request)
        answer = server.script(request)
        self.close_connection = True
        self.wfile.write(answer.raw if answer.raw is not None else self._bytes_of_head(answer))
        if answer.raw is None and self.command == "GET":
            for at in range(0, len(answer.body), 100) if answer.pause else (None,):
                self.wfile.write(answer.body if at is None else answer.body[at : at + 100])
                time.sleep(answer.pause)
        if answer.end == "hang":
            server.stopped.wait(60)
        if answer.end == "reset":
            reset(self.connection)

    def _bytes_of_head(self, answer: Answer) -> bytes:
        lines = [
            f"HTTP/1.1 {answer.status} {NAMES.get(answer.status, 'Status')}",
            "Connection: close",
        ]
        if answer.length is not None:
            lines.append(
                f"Content-Length: {len(answer.body) if answer.length < 0 else answer.length}"
            )
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


@contextmanager
def scripted(script: Script):
    """A running server; `seen` are its requests."""
    with running(_Server(script)) as server:
        try:
            yield server
        finally:
            server.stopped.set()
