"""An HTTP server on loopback with a given latency and bandwidth."""

from __future__ import annotations

import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, BinaryIO

from wenet_uio.base.files import append_line

PIECE = 1 << 14
"""Bytes sent at once if bandwidth is limited."""


class Handler(BaseHTTPRequestHandler):
    """Serve files and byte ranges of files: each answer begins after `latency` and is limited to
    `bandwidth`.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder = Path()
    latency = 0.0
    bandwidth: float | None = None
    log: Path | None = None

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Answer with the headers of a file."""
        self._answer(with_body=False)

    def do_GET(self) -> None:
        """Answer with a file or a range of it."""
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        began = time.monotonic() + self.latency
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self._log(is_range=False, sent=0)
            time.sleep(self.latency)
            self.send_error(404)
            return

        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        last = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size

        self._log(is_range=bool(wanted), sent=last - first if with_body else 0)
        time.sleep(self.latency)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(last - first))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last - 1}/{size}")

        self.end_headers()
        if with_body:
            self.wfile.flush()
            with path.open("rb") as file:
                self._send(file, began, first, last)

    def _log(self, is_range: bool, sent: int) -> None:
        if self.log is not None:
            line = {"time": time.time(), "path": self.path, "range": is_range, "bytes": sent}
            append_line(self.log, line)

    def _send(self, file: BinaryIO, began: float, first: int, last: int) -> None:
        piece = PIECE if self.bandwidth else max(1, last - first)
        for place in range(first, last, piece):
            self.connection.sendfile(file, place, min(piece, last - place))
            if self.bandwidth:
                due = began + (min(place + piece, last) - first) / self.bandwidth
                time.sleep(max(0.0, due - time.monotonic()))


def serve(
    folder: Path,
    port: Queue,
    latency: float,
    bandwidth: float | None = None,
    log: Path | None = None,
) -> None:
    """Serve a folder until the process is killed; put the port on the queue `port`.

    Args:
        latency: seconds from a request to its answer.
        bandwidth: bytes per second of each connection; None is unlimited.
        log: file that gets a JSON line for each request: time, path, range, bytes.
    """
    settings = {"folder": folder, "latency": latency, "bandwidth": bandwidth, "log": log}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Slow", (Handler,), settings))
    server.request_queue_size = 128
    port.put(server.server_port)
    server.serve_forever()
