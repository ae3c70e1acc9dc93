"""Who may use the server: tokens, pages of other origins, and names of the server."""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

KEY_PROTOCOL = "openai-insecure-api-key."
"""What stands before a token among the subprotocols of a WebSocket: OpenAI's package for browsers,
which cannot send other headers, has it there."""


def bearer_token(request: web.Request) -> str | None:
    """Read the bearer token in the headers of a request; None if there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()

    protocols = map(str.strip, request.headers.get("Sec-WebSocket-Protocol", "").split(","))
    keys = [name.removeprefix(KEY_PROTOCOL) for name in protocols if name.startswith(KEY_PROTOCOL)]
    return keys[0] if keys else None


def is_allowed(origin: str | None, origins: Collection[str]) -> bool:
    """Tell whether `origins` has the origin of a page, or `*` for all."""
    return origin is not None and ("*" in origins or origin in origins)


def check_origin(request: web.Request, origins: Collection[str]) -> None:
    """Refuse pages of other hosts: a browser lets any page connect to a server on its own machine.

    Raises:
        PermissionError: the request comes from a page of another host.
    """
    origin = request.headers.get("Origin")
    if origin is None or is_allowed(origin, origins):
        return

    if _host_name(origin) != request.headers.get("Host") or not _is_own_name(request, origin):
        raise PermissionError(f"pages of {origin!r:.100} may not use this server (--allow_origin)")


def check_host(request: web.Request, origins: Collection[str]) -> None:
    """Refuse requests for other hosts at a loopback address.

    A hostile page can let its own host name point to the loopback address (DNS rebinding). Then the
    browser takes answers of this server for answers of that host.

    Raises:
        WrongHostError: the header `Host` names neither this machine nor the host of an allowed
            origin.
    """
    host = request.headers.get("Host")
    if host is None or "*" in origins or host in map(_host_name, origins):
        return

    if not _is_own_name(request, f"http://{host}"):
        raise WrongHostError(
            f"this server is not {host!r:.100}; behind a proxy, name the origin under which "
            "browsers see the page (--allow_origin)"
        )


class WrongHostError(Exception):
    """A request is for another host."""


def _is_own_name(request: web.Request, url: str) -> bool:
    """Tell whether a URL may name this server: at a loopback address, only by a local name."""
    address = request.transport and request.transport.get_extra_info("sockname")
    if not address or not _is_loopback(address[0]):
        return True

    try:
        name = urlsplit(url).hostname or ""
    except ValueError:
        return False

    name = name.rstrip(".")
    # Debian gives the name of a machine a loopback address.
    own_name = socket.gethostname().lower()
    return _is_loopback(name) or name.endswith(".localhost") or name == own_name


def _host_name(origin: str) -> str | None:
    """Return the host of an origin, with its port; None if it has none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
