"""An HTTP server on loopback that is as far away as it is told to be."""

from __future__ import annotations

import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from wenet_uio.files import append_line

PIECE = 1 << 14
"""Bytes sent at a time where bandwidth is bounded."""


class Handler(BaseHTTPRequestHandler):
    """Whole files and ranges of them, each request after a pause, each answer no faster than its connection may be."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder = Path()
    latency, bandwidth, log = 0.0, None, None

    def log_message(self, *args) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        began = time.monotonic() + self.latency
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        last = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
        if self.log is not None:
            line = {"time": time.time(), "path": self.path, "range": bool(wanted), "bytes": last - first}
            append_line(self.log, line)
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

    def _send(self, file, began: float, first: int, last: int) -> None:
        piece = PIECE if self.bandwidth else max(1, last - first)
        for place in range(first, last, piece):
            self.connection.sendfile(file, place, min(piece, last - place))
            if self.bandwidth:
                due = began + (min(place + piece, last) - first) / self.bandwidth
                time.sleep(max(0.0, due - time.monotonic()))


def serve(folder: Path, port, latency: float, bandwidth: float | None = None, log: Path | None = None) -> None:
    """Show a folder until killed; puts its port on a queue.

    Args:
        latency: seconds that every request takes.
        bandwidth: bytes per second of each connection; None is as fast as it goes.
        log: gets a JSON line for each request.
    """
    settings = {"folder": folder, "latency": latency, "bandwidth": bandwidth, "log": log}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Slow", (Handler,), settings))
    server.request_queue_size = 128
    port.put(server.server_port)
    server.serve_forever()
