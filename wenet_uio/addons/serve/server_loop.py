"""Listen on an address until a signal says stop; then finish open utterances."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import signal
import socket
import ssl
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import BadContentDispositionHeader, BadContentDispositionParam, web
from aiohttp.http_exceptions import HttpProcessingError

from wenet_uio.addons.serve.app import Server
from wenet_uio.addons.serve.connections import Connection
from wenet_uio.addons.serve.reload import Reloading, Sources

PROBES = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}
"""{all addresses of a kind: one of them, in a network that is for examples alone}."""
REPEAT = 60.0
"""Seconds between two reports that there are no open files left."""

log = logging.getLogger(__name__)


def serve_until_stopped(
    server: Server,
    host: str,
    port: int,
    sources: Sources,
    unix_socket: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; see `serve`."""
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(is_fault_of_server)
    keep_texts_out_of_log()
    asyncio.run(serve(server, host, port, sources, unix_socket))


def is_fault_of_server(record: logging.LogRecord) -> bool:
    """Tell whether a record of aiohttp belongs into the log.

    A client that does not speak HTTP gets an answer, not a log.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def keep_texts_out_of_log() -> None:
    """Let no text of a client into the log of this process through an exception or a warning."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(hide_message)
    # It would log the subprotocols that a client asks for, among which a token may be.
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
    for category in (BadContentDispositionHeader, BadContentDispositionParam):
        warnings.filterwarnings("ignore", category=category)


def hide_message(record: logging.LogRecord) -> bool:
    """Write an exception as its type and where it was raised, without its message."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        steps = "".join(traceback.format_tb(error.__traceback__))
        record.exc_text = f"Traceback (most recent call last):\n{steps}{type(error).__qualname__}"
    return True


async def serve(
    server: Server,
    host: str,
    port: int,
    sources: Sources | None = None,
    unix_socket: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; then drain, close the socket, and finish what is open.

    SIGINT comes from a person who waits: the first one ends the open utterances at once, the next
    one all.

    SIGHUP reads model, tokens and certificate again; it stops the server if it comes because the
    terminal has gone.

    Args:
        sources: what SIGHUP reads again; None: it stops the server.
        unix_socket: path of a socket to listen on, in place of host and port.

    Raises:
        OSError: the server cannot listen on this address.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(FullLog().take)
    certificate = sources and sources.certificate
    context = certificate and certificate.context
    runner = web.AppRunner(server.app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        server.connections.fit_to_system()
        if unix_socket is None:
            listening = await _listen_on_port(server, runner, context, host, port)
        else:
            listening = await listen_on_path(server, runner, context, unix_socket)

        stopping, hurrying, at_once = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def interrupt() -> None:
            if is_finishing:
                at_once.set()
            hurrying.set()
            stopping.set()

        had_terminal = _has_terminal()
        reloading = sources and Reloading(server, sources)

        def hang_up() -> None:
            if reloading is None or (had_terminal and not _has_terminal()):
                stopping.set()
            else:
                reloading.ask()

        is_finishing = False
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        loop.add_signal_handler(signal.SIGINT, interrupt)
        log.info("serving %s on %s", server.name, page_url(listening, context is not None))
        await stopping.wait()

        log.info("stopping: open utterances are finished; Ctrl-C again: at once")
        await server.drain(hurrying)
        close(listening)
        await server.wait_for_streams(hurrying)
        is_finishing = True
        tasks = [asyncio.create_task(server.finish()), asyncio.create_task(at_once.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    finally:
        await runner.cleanup()


def _has_terminal() -> bool:
    """Tell whether a person can read what this process writes, or write what it reads."""
    return any(os.isatty(number) for number in (0, 1, 2))


async def _listen_on_port(
    server: Server,
    runner: web.AppRunner,
    context: ssl.SSLContext | None,
    host: str,
    port: int,
) -> asyncio.Server:
    """Accept connections at an address.

    Raises:
        OSError: the server cannot listen there; names the options.
    """
    try:
        return await listen(server, runner, context, host=host, port=port)
    except (OSError, OverflowError) as error:
        raise OSError(
            f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}"
        ) from None


async def listen_on_path(
    server: Server, runner: web.AppRunner, context: ssl.SSLContext | None, path: str
) -> asyncio.Server:
    """Accept connections at a socket in the file system.

    A socket that an ended server has left is replaced.

    Raises:
        OSError: the server cannot listen there; names the option.
    """
    if is_listening(path):
        raise OSError(f"--unix_socket {path}: another server listens there")

    try:
        # Binding replaces a socket, and nothing else.
        return await asyncio.get_running_loop().create_unix_server(
            acceptor(server, runner), path, **_tls_arguments(server, context)
        )
    except OSError as error:
        raise OSError(f"--unix_socket {path}: {error.strerror or error}") from None


def is_listening(path: str) -> bool:
    """Tell whether a server listens at a socket in the file system."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError:  # also of a path that is too long, which binding refuses too
            return False
        return True


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
    return await asyncio.get_running_loop().create_server(
        acceptor(server, runner), **_tls_arguments(server, context), **where
    )


def acceptor(server: Server, runner: web.AppRunner) -> Callable[[], Connection]:
    """Return what makes the connections of the application."""
    assert runner.server is not None, "the runner is set up first"
    return server.connections.acceptor(runner.server)


def _tls_arguments(server: Server, context: ssl.SSLContext | None) -> dict[str, Any]:
    return {
        "ssl": context,
        "ssl_handshake_timeout": server.head_seconds if context else None,
    }


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
            # The name of a callback is followed by its arguments, which may be texts of a client.
            what = context["message"].partition(" in callback")[0]
            log.error("error: %s", what, exc_info=error if isinstance(error, Exception) else None)
        elif loop.time() - self._last > REPEAT:
            self._last = loop.time()
            log.error("error: no connection can be accepted: %s (ulimit -n)", error.strerror)


def close(listening: asyncio.Server) -> None:
    """Accept no more connections; a socket in the file system vanishes."""
    paths = [listener.getsockname() for listener in listening.sockets if _is_unix(listener)]
    listening.close()
    for path in paths:
        with suppress(FileNotFoundError):
            Path(path).unlink()


def _is_unix(listener: socket.socket) -> bool:
    return listener.family == socket.AF_UNIX


def page_url(listening: asyncio.Server, is_secure: bool) -> str:
    """Return where the page is: the address of this machine for others if the server listens on
    all. Of a socket in the file system, its path.
    """
    if _is_unix(listening.sockets[0]):
        return f"unix:{listening.sockets[0].getsockname()}"

    host, port = listening.sockets[0].getsockname()[:2]
    if host in PROBES:
        host = own_address(host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if is_secure else 'http'}://{shown}:{port}"


def own_address(host: str) -> str:
    """Return the address of this machine for others, or its name if it has no route to others.

    Args:
        host: the address at which the server listens on all interfaces: 0.0.0.0 or ::.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((PROBES[host], 9))  # sends nothing; the system chooses an address
        except OSError:
            return socket.gethostname()
        return probe.getsockname()[0]
