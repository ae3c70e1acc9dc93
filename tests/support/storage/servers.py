"""Real servers on loopback: HTTP with ranges and faults on demand, S3 (moto), FTP (pyftpdlib)."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import contextmanager
from functools import lru_cache
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from tests.support.serve.running_server import running


class FaultyServer(ThreadingHTTPServer):
    """Serves a folder. `fault(path, number)` gives the fault for a GET, or None; `number` counts
    the GETs of a path.

    A fault is a status (404, 500, 503) or a name that `_Handler._answer` knows.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, folder: Path, port: int = 0, fault: Callable | None = None, latency: float = 0.0
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.folder, self.fault, self.latency = folder, fault, latency
        self.with_head = True
        self.ranges_are: Literal["sent", "ignored", "refused", "other"] = "sent"
        """`other`: the server sends the whole object as if it were a range."""
        self.requests: Counter[str] = Counter()
        self.ranges: list[tuple[str, int]] = []
        """Path and first byte of each answered GET."""
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request, client_address):
        assert isinstance(request, socket.socket)
        self.open.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request, client_address):
        """Ignore clients that close the connection early."""

    def cut_all(self) -> None:
        """Break every connection."""
        for connection in list(self.open):
            reset(connection)


@lru_cache(64)
def md5_of(path: Path, size: int, mtime_ns: int) -> str:
    """The MD5 of a file of this size and time."""
    return md5(path.read_bytes()).hexdigest()


def reset(connection: socket.socket) -> None:
    """Close a connection with a reset."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
        connection.close()
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        """Write no log."""

    def do_HEAD(self):
        if not self.server.with_head:
            self.send_error(403)
            return
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        server = self.server
        time.sleep(server.latency)
        name = unquote(self.path.split("?")[0])
        with server.lock:
            number = server.requests[name]
            server.requests[name] += body
        fault = server.fault(name, number) if server.fault and body else None
        path = server.folder / name.lstrip("/")
        if fault in (404, 500, 503):
            self.send_error(fault)
            return
        if not path.is_file():
            self.send_error(404)
            return
        if fault == "reset":
            reset(self.connection)
            self.close_connection = True
            return
        status = path.stat()
        size = status.st_size
        tag = f'"{md5_of(path, size, status.st_mtime_ns)}"'
        first, last = 0, size
        wanted = self.headers.get("Range") if server.ranges_are != "ignored" else None
        if wanted and server.ranges_are == "refused":
            self.send_error(416)
            return
        if wanted and server.ranges_are == "sent":
            start, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(start), min(size, int(end) + 1) if end else size
        with path.open("rb") as file:
            file.seek(first)
            part = file.read(last - first)
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", tag)
        length = (
            len(part) + 1000 if fault == "long" else len(part) // 2 if fault == "cut" else len(part)
        )
        self.send_header("Content-Length", str(length))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last - 1}/{size}")
        self.end_headers()
        if not body:
            return
        server.ranges.append((name, first))
        if fault in ("short", "long", "stall"):
            part = part[: len(part) // 2]
            self.close_connection = True
        if fault == "cut":
            part = part[:length]
        for at in range(0, len(part), 1 << 14):
            self.wfile.write(part[at : at + (1 << 14)])
            if fault == "slow":
                time.sleep(0.05)
        if fault == "stall":
            time.sleep(60)


@contextmanager
def serving(folder: Path, **options):
    """A running FaultyServer."""
    server = FaultyServer(folder, **options)
    try:
        with running(server):
            yield server
    finally:
        server.cut_all()


@contextmanager
def away(server: FaultyServer, seconds: float, folder: Path):
    """Stop a server, break its connections, and start another one on its port after some
    seconds.
    """
    port = server.server_port
    server.shutdown()
    server.server_close()
    server.cut_all()
    back = []

    def come_back() -> None:
        time.sleep(seconds)
        again = FaultyServer(folder, port)
        back.append(again)
        again.serve_forever(poll_interval=0.02)

    thread = threading.Thread(target=come_back, daemon=True)
    thread.start()
    yield
    give_up = time.monotonic() + seconds + 60
    while not back:
        assert thread.is_alive(), f"no server could start again on port {port}"
        assert time.monotonic() < give_up, f"no server within {seconds + 60} s on port {port}"
        time.sleep(0.02)
    back[0].shutdown()
    back[0].server_close()
    back[0].cut_all()
    thread.join(60)


@contextmanager
def serving_ftp(folder: Path, without: Collection[str] = ()):
    """An FTP server of a folder that lacks the commands `without`; yields its URL."""
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    authorizer = DummyAuthorizer()
    authorizer.add_user("speech", "secret word", str(folder), perm="elr")
    authorizer.add_anonymous(str(folder))
    commands = {name: made for name, made in FTPHandler.proto_cmds.items() if name not in without}
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer, "proto_cmds": commands})
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"timeout": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"ftp://127.0.0.1:{server.address[1]}"
    finally:
        server.close_all()
        thread.join(5)


@contextmanager
def serving_s3(folder: Path, monkeypatch, bucket: str = "corpus"):
    """An S3 server that holds the files of a folder in a bucket; yields the bucket's URL."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # an instance keeps the address of an earlier server
    try:
        client = boto3.client("s3")
        client.create_bucket(Bucket=bucket)
        for path in folder.rglob("*"):
            if path.is_file():
                client.upload_file(str(path), bucket, str(path.relative_to(folder)))
        yield f"s3://{bucket}"
    finally:
        server.stop()
