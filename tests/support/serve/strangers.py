"""Strangers of a server: crowds that hold what others need, and small requests that want memory."""

from __future__ import annotations

import asyncio
import gzip
import io
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache, partial

import aiohttp
import torch

from tests.support.audio.arrays import pth

PATH = "/v1/audio/transcriptions"
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
DROP, PAUSE = 20, 2.0
"""A slow upload sends so many bytes, then waits so many seconds."""
AGAIN = 1.0
"""Seconds after which a stranger that was sent away comes again."""


@asynccontextmanager
async def crowd(
    url: str, *, idle: int, silent: int, slow: int, bombs: bool
) -> AsyncIterator[Callable[[], int]]:
    """Strangers during a block; they come again when they are sent away.

    Begins when slow uploads have gone on for so long that they give way to others, and yields a
    function that says how often strangers were sent away.

    Args:
        idle: connections that send nothing.
        silent: WebSockets that do not start.
        slow: uploads that never end.
        bombs: small requests that want much memory, one after the other.
    """
    sent_away = 0
    dripping = asyncio.Semaphore(0)
    if bombs:
        _bombs()

    async def stay(visit: Callable[[aiohttp.ClientSession, str], Awaitable[None]]) -> None:
        nonlocal sent_away
        while True:
            with suppress(aiohttp.ClientError, ConnectionError, asyncio.TimeoutError):
                await visit(client, url)
            sent_away += 1
            await asyncio.sleep(AGAIN)

    drip = partial(_drip, dripping.release)
    visits = [_sit] * idle + [_listen] * silent + [drip] * slow + [_explode] * bombs
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        tasks = [asyncio.create_task(stay(visit)) for visit in visits]
        try:
            for _ in range(slow // 2):
                await asyncio.wait_for(dripping.acquire(), 60)
            yield lambda: sent_away
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _sit(_: aiohttp.ClientSession, url: str) -> None:
    """Connect, and wait until the server closes."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.read()
    finally:
        writer.transport.abort()


async def _listen(client: aiohttp.ClientSession, url: str) -> None:
    """Open a WebSocket, and wait until the server closes it."""
    async with client.ws_connect(url) as socket:
        async for _ in socket:
            pass


async def _drip(goes_on: Callable[[], None], client: aiohttp.ClientSession, url: str) -> None:
    """Begin an upload, and go on with a few bytes now and then; call `goes_on` each time."""

    async def content() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'
        while True:
            await asyncio.sleep(PAUSE)
            goes_on()
            yield bytes(DROP)

    async with client.post(url + PATH, data=content(), headers=FORM) as answer:
        await answer.read()


async def _explode(client: aiohttp.ClientSession, url: str) -> None:
    """Send each bomb once."""
    for body, headers in _bombs():
        with suppress(aiohttp.ClientError, ConnectionError):
            async with client.post(url + PATH, data=body, headers=headers) as answer:
                assert answer.status in (400, 413, 415, 503), await answer.text()

    with suppress(aiohttp.ClientError, ConnectionError):
        async with client.ws_connect(url) as socket:
            await asyncio.wait_for(socket.send_bytes(bytes(15 << 20)), 1)


def _form(content: bytes, count: int = 1, name: bytes = b"file") -> bytes:
    part = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name, content)
    return part * count + b"--x--\r\n"


def _compressed_tensor() -> bytes:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(pth(torch.zeros(20_000_000)))) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return file.getvalue()


@cache
def _bombs() -> list[tuple[bytes, dict[str, str]]]:
    """Bodies and headers of requests."""
    return [
        (gzip.compress(_form(bytes(250_000_000)), 1), FORM | {"Content-Encoding": "gzip"}),
        (_form(pth(torch.zeros(1, 1).expand(1 << 15, 1 << 15))), FORM),
        (_form(_compressed_tensor()), FORM),
        (_form(b"x" * 1000, 20_000, b"prompt"), FORM),
        (_form(b"ID3\x03\0\0\0\0\0\0" * 1_000_000), FORM),
    ]
