"""Read model, tokens and certificate again while the server serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.serve.app import Server
from wenet_uio.addons.serve.tls import Certificate

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """Where a server reads its parts again."""

    load_model: Callable[[], SpeechRecogniser]
    read_tokens: Callable[[], str | None]
    """Returns the text of the token file; None: no token is needed."""
    certificate: Certificate | None


class Reloading:
    """Reads the parts of a server again. A part that cannot be read stays as it was."""

    def __init__(self, server: Server, sources: Sources) -> None:
        self._server, self._sources = server, sources
        self._running: asyncio.Task[None] | None = None
        self._asked = False
        """Whether to read once more, because files may have changed since the reading began."""

    def ask(self) -> None:
        """Begin to read, in the running event loop."""
        self._asked = True
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._read_all())

    async def _read_all(self) -> None:
        while self._asked:
            self._asked = False
            # A token that was stolen and a certificate that ends do not wait for the model.
            await self._try("tokens", self._read_tokens)
            await self._try("certificate", self._read_certificate)
            await self._try("model", self._load_model)

    async def _try(self, part: str, read: Callable[[], Awaitable[None]]) -> None:
        """Read a part, and say how it went."""
        try:
            await read()
        except Exception as error:
            log.error("error: reload: the old %s stays in use: %s", part, error)
        else:
            log.info("reloaded: %s", part)

    async def _read_tokens(self) -> None:
        self._server.use_tokens(await asyncio.to_thread(self._sources.read_tokens))

    async def _read_certificate(self) -> None:
        if self._sources.certificate is not None:
            await asyncio.to_thread(self._sources.certificate.reload)

    async def _load_model(self) -> None:
        recogniser = await asyncio.to_thread(self._sources.load_model)
        await self._server.use_model(recogniser)
