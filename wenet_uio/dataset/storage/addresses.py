"""Which stores and hosts the URI of a list may name. A list may come from a stranger, and some
drivers of fsspec read local files, or run what an object says.
"""

from __future__ import annotations

import ipaddress
import socket

from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage.settings import STORES, further_stores
from wenet_uio.dataset.storage.versions import DriverError

SCHEMES = frozenset(
    (
        "file",
        "http",
        "https",
        "ftp",
        "ais",
        "s3",
        "s3a",
        "oss",
        "gs",
        "gcs",
        "hdfs",
        "webhdfs",
        "hf",
    )
)
"""Schemes that lists may have without a setting."""
METADATA_HOSTS = frozenset(
    ("metadata.google.internal", "metadata.goog", "100.100.100.200", "192.0.0.192", "fd00:ec2::254")
)
"""Services of clouds that give credentials to whoever asks; most others are link-local."""
TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses whose last four bytes are an address of IPv4 (RFC 6052)."""


def check_scheme(uri: str) -> None:
    """Check that a list may name the store of `uri`.

    Raises:
        DriverError: its scheme is not allowed, or it chains several (`simplecache::file://`).
    """
    scheme = uri.partition("://")[0]
    if "::" in scheme:
        raise DriverError(
            f"{shown(uri)}: chained URIs ({scheme}://) are not read; copy the object to a store of "
            "its own"
        )
    if scheme not in SCHEMES and scheme not in further_stores():
        raise DriverError(
            f"{shown(uri)}: {scheme}:// is read only if the variable {STORES} names {scheme}, since "
            "some drivers read local files or run code of an object"
        )


class HostError(ValueError):
    """A URI leads to a service of the machine or cloud, not to a store."""


def check_host(host: str) -> None:
    """Check that a host, a name or an address, is neither link-local nor a metadata service.

    Raises:
        HostError: it is one, and the variable WENET_UIO_STORES does not name it.
    """
    host = host.strip("[]").rstrip(".").lower()
    if (host in METADATA_HOSTS or _is_link_local(host)) and host not in further_stores():
        raise HostError(
            f"{host} is a service of this machine or cloud, not a store; if it is a store, name it "
            f"in the variable {STORES}"
        )


def check_peer(connection: socket.socket) -> None:
    """Check the address that a name led to, before anything is asked for. Raises HostError."""
    check_host(connection.getpeername()[0])


def check_addresses(host: str) -> None:
    """Check a host and the addresses of its name, for drivers that connect themselves.

    Raises:
        HostError: one of them is no store.
    """
    check_host(host)
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return  # the driver says that there is no such host

    for *_, address in found:
        check_host(str(address[0]))


def _is_link_local(host: str) -> bool:
    """Tell whether a host is a link-local address, or an IPv6 address that leads to one of IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False

    addresses = [address]
    if isinstance(address, ipaddress.IPv6Address):
        addresses += [address.ipv4_mapped, address.sixtofour]
        if address in TRANSLATED:
            addresses.append(ipaddress.IPv4Address(address.packed[-4:]))
    return any(found is not None and found.is_link_local for found in addresses)
