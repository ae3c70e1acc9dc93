"""AIStore on loopback: a gateway that redirects every request for an object to a target, as
AIStore's proxies do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.serve.running_server import running

OBJECTS = "/v1/objects/"


class AisServer(ThreadingHTTPServer):
    """A target that serves the folder of each bucket, or the gateway of a target."""

    daemon_threads = True

    def __init__(self, buckets: Path, target: AisServer | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets, self.target = buckets, target
        self.answered: list[tuple[str, str, str | None]] = []
        """Method, object and range of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AisServer

    def log_message(self, *args):
        """Write no log."""

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        name = unquote(parts.path)
        if not name.startswith(OBJECTS):
            self.send_error(400)
            return
        if self.server.target is not None:
            self.send_response(307)
            self.send_header("Location", f"{self.server.target.url}{parts.path}?pid=gateway&utm=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.server.answered.append(
            (self.command, name.removeprefix(OBJECTS), self.headers.get("Range"))
        )
        path = self.server.buckets / name.removeprefix(OBJECTS)
        if "pid=" not in parts.query or not path.is_file():
            self.send_error(404)
            return
        self._send(path.read_bytes())

    def _send(self, data: bytes) -> None:
        start, end = 0, len(data)
        wanted = self.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(len(data), int(last) + 1) if last else len(data)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.send_header("Ais-Checksum-Type", "xxhash2")
        self.send_header("Ais-Checksum-Value", hashlib.blake2b(data, digest_size=8).hexdigest())
        self.send_header("Ais-Version", "1")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[start:end])


@contextmanager
def serving_ais(buckets: Path, monkeypatch) -> Iterator[AisServer]:
    """Serve the buckets in a folder; AIS_ENDPOINT is the gateway. Yields the target."""
    with ExitStack() as stack:
        target = AisServer(buckets)
        stack.enter_context(running(target))
        gateway = AisServer(buckets, target)
        stack.enter_context(running(gateway))
        monkeypatch.setenv("AIS_ENDPOINT", gateway.url)
        yield target
