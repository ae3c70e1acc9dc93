"""Which module reads which scheme. To add a transport, write a module with its two functions and
name it here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from wenet_uio.base.uris import is_shown_form
from wenet_uio.dataset.storage import driver_store, ftp_store, http_store
from wenet_uio.dataset.storage.addresses import check_scheme
from wenet_uio.dataset.storage.versions import DriverError, Version


class Transport(NamedTuple):
    """The two functions that read from a kind of store.

    Both make one attempt and may raise errors of any type when a connection breaks; `transfer.py`
    repeats them.
    """

    version: Callable[[str], Version]
    """Version of the object of a URI.

    Raises:
        FileNotFoundError, PermissionError, RefusedError, DriverError: another attempt would not
        help.
    """
    chunks: Callable[[str, int, int | None, Version, bool], Generator[bytes, None, None]]
    """Bytes of the object of a URI, from one offset up to another (None: the end), chunk by chunk.
    The last argument tells that the range is one of many.

    Raises:
        ChangedError: the object has another version than the one given.
        NoRangesError: the range is one of many, and reading it costs much more than a request.
        Otherwise the errors of `version`.
    """
    states_version: bool
    """Whether a range of many is compared with the version. Otherwise the caller asks for the
    version once more after the last one."""


HTTP = Transport(http_store.find_version, http_store.read_chunks, True)
FTP = Transport(ftp_store.find_version, ftp_store.read_chunks, True)
DRIVER = Transport(driver_store.find_version, driver_store.read_chunks, False)
TRANSPORTS = {"http": HTTP, "https": HTTP, "ais": HTTP, "oss": HTTP, "ftp": FTP}
"""Scheme -> transport. Every other scheme is read through its fsspec driver.

http and ftp do not use fsspec's drivers, because those cannot tell a short answer from a whole one,
do not give up a connection that sends nothing, and one needs an event loop in every worker.
"""


def transport(uri: str) -> Transport:
    """Return the transport of a URI.

    Raises:
        DriverError: the URI is only the shown form of one with a password or signature, or its
            scheme is not allowed.
    """
    if is_shown_form(uri):
        raise DriverError(
            f"{uri}: its password or signature was hidden when it was written to a report or "
            "train.yaml; "
            "name the original list or config"
        )
    check_scheme(uri)
    return TRANSPORTS.get(uri.partition("://")[0], DRIVER)
