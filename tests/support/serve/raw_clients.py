"""Clients that write to a plain socket, for what no WebSocket library would send."""

from __future__ import annotations

import socket as sockets
import time
from collections.abc import Callable


def until(condition: Callable[[], bool]) -> bool:
    """Wait up to 20 s for a condition; return whether it holds."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def raw_socket(
    url: str, receive_buffer: int = 65536, path: str = "/", token: str = "none"
) -> sockets.socket:
    """A connection after the handshake, as a plain socket."""
    host, _, port = url.removeprefix("ws://").partition(":")
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, receive_buffer)
    raw.connect((host, int(port)))
    raw.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Authorization: Bearer {token}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert b"101" in raw.recv(4096)
    return raw


def frame(opcode: int, content: bytes) -> bytes:
    """A masked frame of a client; the mask is zeros."""
    size = (
        bytes([0x80 | len(content)])
        if len(content) < 126
        else b"\xfe" + len(content).to_bytes(2, "big")
    )
    return bytes([0x80 | opcode]) + size + bytes(4) + content


def reset(raw: sockets.socket) -> None:
    """Vanish: the connection is reset, not closed."""
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raw.close()
