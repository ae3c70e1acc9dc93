"""Clients that do harm, for serve.py: they vanish at random places, send malformed frames, or send
without end.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, repeat
from urllib.parse import urlsplit

from serve_clients import START

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
AUDIO = random.Random(0).randbytes(32000)
"""A second of noise."""
AT_ONCE = 16
"""Clients that connect and vanish at once."""


def connect(url: str) -> socket.socket:
    """Connect to a server."""
    address = urlsplit(url)
    return socket.create_connection((str(address.hostname), address.port or 80), timeout=10)


def handshake(url: str) -> bytes:
    """Return the request of a client that wants a WebSocket."""
    head = [
        "GET / HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
    ]
    return "\r\n".join(
        [*head, "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==", "", ""]
    ).encode()


def frame(kind: int, content: bytes, *, last: bool = True) -> bytes:
    """Return a frame of a client; its mask is zeros. Without `last` the message goes on with the
    next frame.
    """
    size = len(content)
    length = (
        bytes([0x80 | size])
        if size < 126
        else struct.pack("!BH" if size < 65536 else "!BQ", *_long(size))
    )
    return bytes([kind | (0x80 if last else 0)]) + length + bytes(4) + content


def _long(size: int) -> tuple[int, int]:
    return (0x80 | (126 if size < 65536 else 127)), size


def start(**fields: object) -> bytes:
    """Return the frame with the signal start."""
    return frame(TEXT, json.dumps({**START, **fields}).encode())


def vanish(url: str, number: int) -> str:
    """Connect, send a part of a stream, and vanish; return the place.

    Places: before and in the middle of the handshake, before and after the signal start, in the
    middle of a packet, between packets, while results come. Half of the clients reset the
    connection, the others close it.
    """
    draw = random.Random(number)
    head = handshake(url)
    places = {
        "connected": b"",
        "in the handshake": head[: draw.randrange(len(head))],
        "before start": head,
        "in start": head + start()[: draw.randrange(1, 40)],
        "after start": head + start(),
        "in a packet": head + start() + frame(BINARY, AUDIO)[: draw.randrange(1, 32000)],
        "after packets": head + start() + frame(BINARY, AUDIO) * draw.randrange(1, 4),
        "after end": head + start() + frame(BINARY, AUDIO) + frame(TEXT, b'{"signal": "end"}'),
        "in the closing": head + start() + frame(BINARY, AUDIO) + frame(CLOSE, b"\3\xe8"),
    }
    place = draw.choice(list(places))

    with connect(url) as client:
        if draw.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
        with suppress(ConnectionError):  # the server may be the first to end it
            client.sendall(places[place])
            time.sleep(draw.choice((0, 0, 0.01, 0.1)))

    return place


def vanish_often(url: str, clients: int) -> int:
    """Let clients connect and vanish, AT_ONCE of them at once; return the number of the places that
    occurred.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return len(set(pool.map(vanish, repeat(url), range(clients))))


def floods(url: str) -> dict[str, Iterator[bytes]]:
    """Return what each flood sends, piece by piece; most are without end."""
    head = handshake(url)
    draw = random.Random(1)
    begun = head + start()
    garbage = iter(lambda: draw.randbytes(4096), b"")
    return {
        "a message without end": chain(
            [begun, frame(BINARY, AUDIO, last=False)], repeat(frame(0, AUDIO, last=False))
        ),
        "a huge message": chain(
            [begun, b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4)], repeat(AUDIO)
        ),
        "a huge text": chain([head, frame(TEXT, b"[" * 900_000)], repeat(b"", 0)),
        "start signals": chain([head], repeat(start(), 1000)),
        "start signals with hot words": repeat(
            head + start(hot_words=["a b c"] * 1000, hot_word_score=1), 1
        ),
        "packets of one sample": chain([begun], repeat(frame(BINARY, b"\0\0") * 100)),
        "empty packets": chain([begun], repeat(frame(BINARY, b"") * 100)),
        "pings": chain([begun], repeat(frame(PING, b"x" * 100) * 100)),
        "audio as fast as it is taken": chain([begun], repeat(frame(BINARY, AUDIO * 30))),
        "garbage instead of frames": chain([head], garbage),
        "garbage instead of HTTP": garbage,
        "header lines without end": chain([head[:-2]], repeat(b"X-More: " + b"x" * 1000 + b"\r\n")),
        "frames without a mask": repeat(begun + b"\x82\x05hello", 1),
        "reserved bits": repeat(begun + b"\xf2\x80" + bytes(4), 1),
        "text that is not UTF-8": repeat(head + frame(TEXT, b"\xff\xfe"), 1),
        "JSON of another kind": repeat(
            head + frame(TEXT, b'{"signal": {"start": [1e999, null]}}'), 1
        ),
        "an upload without end": chain([_upload(url)], repeat(AUDIO)),
    }


def _upload(url: str) -> bytes:
    """Return the first bytes of an upload that claims 1 TiB."""
    form = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    lines = [
        "POST /v1/audio/transcriptions HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Content-Length: {1 << 40}",
    ]
    return "\r\n".join([*lines, "Content-Type: multipart/form-data; boundary=x", "", form]).encode()


def flood(url: str, pieces: Iterator[bytes], seconds: float) -> bool:
    """Send pieces until the server ends the connection or the time is over; return whether the
    server ended it.

    What the server sends is read and dropped.
    """
    until = time.monotonic() + seconds
    with connect(url) as client:
        client.settimeout(0.2)
        try:
            for piece in pieces:
                if not _send(client, piece, until):
                    return False
            return _ended(client, until)
        except ConnectionError:
            return True


def _send(client: socket.socket, piece: bytes, until: float) -> bool:
    """Send a piece; return whether time is left."""
    view = memoryview(piece)
    while view and time.monotonic() < until:
        try:
            view = view[client.send(view) :]
        except TimeoutError:
            continue

    return time.monotonic() < until


def _ended(client: socket.socket, until: float) -> bool:
    while time.monotonic() < until:
        try:
            if not client.recv(65536):
                return True
        except TimeoutError:
            continue
    return False


def flood_all(url: str, seconds: float, alive: Callable[[], bool]) -> dict[str, bool]:
    """Let all floods run, three at once; return whether the server ended the connection of each.

    Raises:
        ValueError: the server does not answer any more.
    """
    named = floods(url)
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(flood, url, pieces, seconds) for pieces in named.values()]
        ended = {name: future.result() for name, future in zip(named, done, strict=True)}

    if not alive():
        raise ValueError("the server does not answer after the floods")

    return ended
