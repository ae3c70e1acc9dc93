"""Who may use the server: tokens, and pages of other origins."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web


def bearer(request: web.Request) -> str | None:
    """The token in the headers of a request."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def check_token(given: str | None, wanted: str | None) -> None:
    """Check a token in constant time; without a wanted one all may come in.

    Raises:
        PermissionError: it is another one.
    """
    if wanted is not None and not hmac.compare_digest(
        (given or "").encode(errors="replace"), wanted.encode()
    ):
        raise PermissionError("the token is missing or wrong (Authorization: Bearer TOKEN)")


def is_allowed(origin: str | None, origins: Collection[str]) -> bool:
    """Whether `origins` names the origin of a page, or all by `*`."""
    return origin is not None and ("*" in origins or origin in origins)


def check_origin(request: web.Request, origins: Collection[str]) -> None:
    """Refuse pages of other hosts: a browser would let any page use a server on its own machine.

    Raises:
        PermissionError: the request comes from such a page.
    """
    origin = request.headers.get("Origin")
    if origin is not None and not is_allowed(origin, origins) and not _is_own(origin, request):
        raise PermissionError(f"pages of {origin!r:.100} may not use this server (--allow_origin)")


def _is_own(origin: str, request: web.Request) -> bool:
    """Whether the page is the server's own.

    A hostile page can give its own host name the address of this machine, so at a loopback address
    the name counts too.
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
