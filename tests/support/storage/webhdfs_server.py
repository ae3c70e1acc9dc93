"""A stand-in for the REST gateway of HDFS (WebHDFS) on loopback: it answers about a folder, and
redirects reads.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.serve.running_server import running


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Write no log."""

    def do_GET(self):
        parts = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(parts.query).items()}
        node, _, name = parts.path[1:].rpartition("webhdfs/v1/")
        path, operation = self.server.folder / unquote(name), query["op"].upper()
        if not path.exists():
            error = {
                "exception": "FileNotFoundException",
                "javaClassName": "x",
                "message": f"no file {path.name}",
            }
            self._send(404, json.dumps({"RemoteException": error}).encode())
        elif operation == "GETFILESTATUS":
            self._send(200, json.dumps({"FileStatus": _status(path, "")}).encode())
        elif operation == "LISTSTATUS":
            found = [_status(each, each.name) for each in sorted(path.iterdir())]
            self._send(200, json.dumps({"FileStatuses": {"FileStatus": found}}).encode())
        elif node != "data/":  # the name node names a data node, which has the contents
            self._send(
                307,
                b"",
                {"Location": f"http://{self.headers['Host']}/data{parts.path}?{parts.query}"},
            )
        else:
            start = int(query.get("offset", 0))
            end = start + int(query["length"]) if "length" in query else None
            self._send(200, path.read_bytes()[start:end])

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _status(path: Path, name: str) -> dict[str, object]:
    status = path.stat()
    kind = "DIRECTORY" if path.is_dir() else "FILE"
    size = 0 if path.is_dir() else status.st_size
    return {
        "pathSuffix": name,
        "type": kind,
        "length": size,
        "modificationTime": status.st_mtime_ns // 1_000_000,
        "permission": "644",
    }


@contextmanager
def serving_webhdfs(folder: Path):
    """A running gateway of a folder; yields its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.folder, server.daemon_threads = folder, True
    with running(server):
        yield f"webhdfs://127.0.0.1:{server.server_port}"
