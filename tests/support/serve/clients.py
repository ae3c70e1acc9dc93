"""A server in a thread, and a client that knows WeNet's WebSocket protocol alone."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

if TYPE_CHECKING:
    from openai import OpenAI

    from wenet_uio.addons.serve.app import Server

PATIENCE = 60
"""Seconds within which a server starts, and ends."""
START = {"signal": "start", "nbest": 1, "continuous_decoding": True}


def openai_client(url: str) -> OpenAI:
    """Return a client of OpenAI's package for a server."""
    from openai import OpenAI  # 0.5 s, which the collection of all tests would pay

    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


class Served:
    """A running server."""

    def __init__(self, url: str, server: Server) -> None:
        self.url, self.server = url, server

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1)


@contextmanager
def served(
    recogniser: Any,
    options: Any = None,
    name: str = "model",
    send_buffer: int = 1 << 18,
    context: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    """Serve a model on a free port of the loopback address.

    `options`: ServeOptions, by default as they are; `send_buffer`: bytes that the system keeps for a
    client that reads nothing. Without the add-on the test is skipped.
    """
    serve = pytest.importorskip("wenet_uio.addons.serve.server_loop")
    from wenet_uio.addons.serve.app import Server
    from wenet_uio.addons.serve.options import ServeOptions

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Server(recogniser, name, options or ServeOptions())

    async def start() -> tuple[web.AppRunner, asyncio.Server]:
        runner = web.AppRunner(server.app, shutdown_timeout=1.0)
        await runner.setup()
        accepting = socket.create_server(("127.0.0.1", 0))
        accepting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        return runner, await serve.listen(server, runner, context, sock=accepting)

    async def end() -> None:
        listening.close()
        await runner.cleanup()
        # As asyncio.run does: aiohttp leaves the task of a connection that was lost while it lingered.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    runner, listening = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE)
    try:
        yield Served(serve.page_url(listening, context is not None), server)
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


async def speak(
    url: str,
    samples: np.ndarray,
    start: dict[str, Any] | None = None,
    *,
    packet: int = 3200,
    pause: float = 0.0,
) -> list[dict[str, Any]]:
    """Send int16 samples as one stream; return all messages of the server."""
    received: list[dict[str, Any]] = []
    async with aiohttp.ClientSession() as client, client.ws_connect(url) as connection:
        await connection.send_json(START if start is None else start)

        async def send() -> None:
            for place in range(0, len(samples), packet):
                await connection.send_bytes(samples[place : place + packet].astype("<i2").tobytes())
                await asyncio.sleep(pause)
            await connection.send_json({"signal": "end"})

        sending = asyncio.create_task(send())
        async for message in connection:
            received.append(json.loads(message.data))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return received


def of_type(received: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The messages of a type."""
    return [message for message in received if message.get("type") == kind]


def sentences(received: list[dict[str, Any]]) -> list[str]:
    """The best sentence of each final result."""
    return [
        json.loads(message["nbest"])[0]["sentence"] for message in of_type(received, "final_result")
    ]
