"""Connections of requests that lead to stores only: every redirect, and every address of a name, is
checked before anything is asked for. A module of its own, because it imports requests.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from wenet_uio.dataset.storage.addresses import check_host, check_peer


def lead_to_stores(session: requests.Session) -> None:
    """Let a session connect to stores only; to other hosts it raises HostError."""
    for scheme in ("http://", "https://"):
        if not isinstance(session.adapters[scheme], _StoreAdapter):
            session.mount(scheme, _StoreAdapter())


class _StoreAdapter(HTTPAdapter):
    """Raises HostError for a host that is no store."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Let the pools make connections that check their addresses."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def send(
        self, request: requests.PreparedRequest, *args: Any, **options: Any
    ) -> requests.Response:
        """Send a request, or one that an answer redirects to."""
        check_host(urlsplit(request.url or "").hostname or "")
        return super().send(request, *args, **options)


class _Connection(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        check_peer(self.sock)


class _SecureConnection(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        check_peer(self.sock)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection  # pyright: ignore[reportAssignmentType] - urllib3 names a protocol


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection  # pyright: ignore[reportAssignmentType] - urllib3 names a protocol
