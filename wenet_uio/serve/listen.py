"""Listen on an address until a signal says stop; then finish open utterances."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from wenet_uio.serve.app import Server

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
    runner = web.AppRunner(server.app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context)
        try:
            await site.start()
        except (OSError, OverflowError) as error:
            raise OSError(
                f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}"
            ) from None

        stopping, at_once = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        loop.add_signal_handler(
            signal.SIGINT, lambda: (at_once if stopping.is_set() else stopping).set()
        )
        log.info("serving %s on %s", server.name, url_of(runner, context is not None))
        await stopping.wait()
        log.info("stopping: open utterances are finished; Ctrl-C again: at once")
        await site.stop()
        tasks = [asyncio.create_task(server.finish()), asyncio.create_task(at_once.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    finally:
        await runner.cleanup()


def url_of(runner: web.AppRunner, is_secure: bool) -> str:
    """Return where the page is; an address for a browser on this machine if the server listens on
    all.
    """
    host, port = runner.addresses[0][:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if is_secure else 'http'}://{shown}:{port}"
