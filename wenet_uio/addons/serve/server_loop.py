"""Listen on an address until a signal says stop; then finish open utterances."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import ssl
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from wenet_uio.addons.serve.app import Server

REPEAT = 60.0
"""Seconds between two reports that there are no open files left."""

log = logging.getLogger(__name__)


def serve_until_stopped(
    server: Server, host: str, port: int, context: ssl.SSLContext | None
) -> None:
    """Serve until SIGTERM or SIGINT; see `serve`."""
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(is_fault_of_server)
    asyncio.run(serve(server, host, port, context))


def is_fault_of_server(record: logging.LogRecord) -> bool:
    """Tell whether a record of aiohttp belongs into the log.

    A client that does not speak HTTP gets an answer, not a log.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def serve(server: Server, host: str, port: int, context: ssl.SSLContext | None) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is open, unless a second SIGINT says that
    nobody waits for it.

    Raises:
        OSError: the server cannot listen on this address.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(FullLog().take)
    runner = web.AppRunner(server.app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        server.connections.fit_to_system()
        try:
            listening = await listen(server, runner, context, host=host, port=port)
        except (OSError, OverflowError) as error:
            raise OSError(
                f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}"
            ) from None

        stopping, at_once = asyncio.Event(), asyncio.Event()

        def interrupt() -> None:
            if stopping.is_set():
                at_once.set()
            stopping.set()

        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        loop.add_signal_handler(signal.SIGINT, interrupt)
        log.info("serving %s on %s", server.name, page_url(listening, context is not None))
        await stopping.wait()
        log.info("stopping: open utterances are finished; Ctrl-C again: at once")
        listening.close()
        tasks = [asyncio.create_task(server.finish()), asyncio.create_task(at_once.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    finally:
        await runner.cleanup()


async def listen(
    server: Server, runner: web.AppRunner, context: ssl.SSLContext | None, **where: Any
) -> asyncio.Server:
    """Accept connections.

    Args:
        runner: of the application of the server, after its `setup`.
        where: arguments of `loop.create_server`: host and port, or sock.

    Raises:
        OSError: the server cannot listen there.
    """
    assert runner.server is not None, "the runner is set up first"
    return await asyncio.get_running_loop().create_server(
        server.connections.acceptor(runner.server),
        ssl=context,
        ssl_handshake_timeout=server.head_seconds if context else None,
        **where,
    )


class FullLog:
    """Takes the errors of an event loop, and logs a lack of open files once in a while.

    asyncio reports every connection that it cannot accept, which are thousands a second.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def take(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error, unless it is the same lack of open files again."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self._last > REPEAT:
            self._last = loop.time()
            log.error("error: no connection can be accepted: %s (ulimit -n)", error.strerror)


def page_url(listening: asyncio.Server, is_secure: bool) -> str:
    """Return where the page is; an address for a browser on this machine if the server listens on
    all.
    """
    host, port = listening.sockets[0].getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if is_secure else 'http'}://{shown}:{port}"
