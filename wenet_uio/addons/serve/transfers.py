"""Uploads that arrive: how many at once, how much memory they have, and which one gives way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

from wenet_uio.addons.serve.forms import Upload, read_upload
from wenet_uio.addons.serve.messages import LimitError
from wenet_uio.addons.serve.options import Limits

TRANSFERS = 4
"""Uploads that may arrive at once, for each place of `max_uploads`."""
YOUNG = 1.0
"""Seconds for which an upload never gives way."""
SLOW = 1 << 14
"""Bytes a second; an upload below this rate gives way to another one."""


@dataclass(eq=False)
class _Transfer:
    """An upload that arrives."""

    reading: asyncio.Task[Upload]
    start: float
    """Time of the event loop, in seconds."""
    size: int = 0
    """Bytes so far."""
    gave_way: bool = field(default=False)

    def rate(self, now: float) -> float:
        """Return the bytes a second since the start."""
        return self.size / (now - self.start)


class Transfers:
    """Uploads that arrive, used in the event loop of the server.

    They have no place among the recordings in work, so that slow ones keep nobody out.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = TRANSFERS * limits.max_uploads
        self._room = limits.max_uploads * limits.max_upload_bytes
        """Bytes that may still arrive."""
        self._open: set[_Transfer] = set()

    @property
    def count(self) -> int:
        """Uploads that arrive."""
        return len(self._open)

    async def receive(self, request: web.Request) -> Upload:
        """Read the upload of a request.

        Raises:
            RefusedError: see `read_upload`.
            LimitError: there are too many uploads, or this one is slow and gives way, or takes
                longer than `upload_seconds`.
        """
        if len(self._open) >= self._most:
            self._make_place()

        loop = asyncio.get_running_loop()

        def take(size: int) -> None:
            if size > self._room:
                raise LimitError("max_uploads", "the server has no memory left for uploads")
            self._room -= size
            transfer.size += size

        reading = asyncio.ensure_future(read_upload(request, self._limits, take))
        transfer = _Transfer(reading, loop.time())
        self._open.add(transfer)
        seconds = self._limits.upload_seconds
        try:
            return await asyncio.wait_for(reading, seconds)
        except asyncio.TimeoutError:
            raise LimitError(
                "upload_seconds", f"the upload took longer than {seconds:g} s"
            ) from None
        except asyncio.CancelledError:
            if not transfer.gave_way:
                raise
            raise LimitError("max_uploads", "a slow upload gave way to others") from None
        finally:
            reading.cancel()
            self._open.discard(transfer)
            self._room += transfer.size

    def _make_place(self) -> None:
        """End the slowest upload.

        Raises:
            LimitError: no upload is slow.
        """
        now = asyncio.get_running_loop().time()
        not_young = [transfer for transfer in self._open if now - transfer.start > YOUNG]
        slowest = min(not_young, key=lambda transfer: transfer.rate(now), default=None)
        if slowest is None or slowest.rate(now) > SLOW:
            raise LimitError(
                "max_uploads", f"{len(self._open)} uploads arrive at once; try again later"
            )

        slowest.gave_way = True
        slowest.reading.cancel()
        self._open.discard(slowest)
