"""Who may use the server: tokens, and pages of other origins."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web


def bearer(request: web.Request) -> str | None:
    """Read the bearer token in the headers of a request; None if there is none."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def check_token(token: str | None, secret: str | None) -> None:
    """Compare the token of a client with the secret of the server; None lets everybody in.

    Raises:
        PermissionError: the token is another one, or is missing.
    """
    if secret is None:
        return

    # The time of the comparison must not tell how many characters are right.
    if not hmac.compare_digest((token or "").encode(errors="replace"), secret.encode()):
        raise PermissionError("the token is missing or wrong (Authorization: Bearer TOKEN)")


def is_allowed(origin: str | None, origins: Collection[str]) -> bool:
    """Tell whether `origins` has the origin of a page, or `*` for all."""
    return origin is not None and ("*" in origins or origin in origins)


def check_origin(request: web.Request, origins: Collection[str]) -> None:
    """Refuse pages of other hosts: a browser lets any page connect to a server on its own machine.

    Raises:
        PermissionError: the request comes from a page of another host.
    """
    origin = request.headers.get("Origin")
    if origin is not None and not is_allowed(origin, origins) and not _is_own(origin, request):
        raise PermissionError(f"pages of {origin!r:.100} may not use this server (--allow_origin)")


def _is_own(origin: str, request: web.Request) -> bool:
    """Tell whether this server served the page.

    A hostile page can let its own host name point to the loopback address (DNS rebinding). So a
    server at a loopback address also checks the name.
    """
    try:
        host = urlsplit(origin)
    except ValueError:
        return False

    address = request.transport and request.transport.get_extra_info("sockname")
    is_local = bool(address) and _is_loopback(address[0])
    return host.netloc == request.headers.get("Host") and (
        not is_local or _is_loopback(host.hostname)
    )


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False
