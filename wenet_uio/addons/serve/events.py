"""The text of a recording while it is transcribed, as server-sent events of OpenAI's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

from wenet_uio.audio.interruption import InterruptionError

Result = TypeVar("Result")
LOOK_SECONDS = 1.0
"""Seconds between two looks whether the client is still connected."""
SILENT_SECONDS = 15.0
"""Seconds without an event before a comment is sent, so that no proxy closes the connection."""
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx sends events at once
}


class GoneError(InterruptionError):
    """The client has vanished."""


class EventFeed:
    """Takes events from the thread that transcribes, and sends them to the client."""

    def __init__(self) -> None:
        """Belong to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def put(self, event: dict[str, Any] | None) -> None:
        """Append an event from any thread; None: there are no more."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def answer(
        self,
        request: web.Request,
        work: asyncio.Future[Result],
        last_event: Callable[[asyncio.Future[Result]], dict[str, Any]],
        send_seconds: float,
    ) -> web.StreamResponse:
        """Send the events of `work` until it has ended.

        Args:
            last_event: the event that tells the result or the error of `work`.
            send_seconds: after which a client that takes no event is given up.

        Raises:
            GoneError: the client has vanished before the first event.
            Exception: what `work` raised before its first event; nothing has been sent then.
        """
        work.add_done_callback(lambda _: self._events.put_nowait(None))
        event: dict[str, Any] | None = {}
        while event == {}:
            event = await self._next_event(request)

        if event is None:
            work.result()

        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        try:
            await self._send_events(event, request, response, send_seconds)
            await _wait_for_client(send_seconds, response.write(_encode_event(last_event(work))))
            await _wait_for_client(send_seconds, response.write_eof())
        except GoneError:
            if request.transport is not None:
                request.transport.abort()

        return response

    async def _send_events(
        self,
        event: dict[str, Any] | None,
        request: web.Request,
        response: web.StreamResponse,
        send_seconds: float,
    ) -> None:
        """Send an event and those after it, up to the end of the work."""
        silent = 0.0
        while event is not None:
            silent = 0.0 if event else silent + LOOK_SECONDS
            if event or silent >= SILENT_SECONDS:
                await _wait_for_client(send_seconds, response.write(_encode_event(event)))
                silent = 0.0
            event = await self._next_event(request)

    async def _next_event(self, request: web.Request) -> dict[str, Any] | None:
        """Return the next event; an empty one if none comes for a while."""
        if request.transport is None or request.transport.is_closing():
            raise GoneError
        try:
            return await asyncio.wait_for(self._events.get(), LOOK_SECONDS)
        except asyncio.TimeoutError:
            return {}


async def _wait_for_client(seconds: float, sending: Awaitable[None]) -> None:
    try:
        await asyncio.wait_for(sending, seconds)
    except (asyncio.TimeoutError, ConnectionError):
        raise GoneError from None


def _encode_event(event: dict[str, Any]) -> bytes:
    """Write an event; one without fields is a comment, which clients ignore."""
    if not event:
        return b": recognising\n\n"
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
