"""Reading from FTP servers, with the standard library.

User and password come from the URL or ~/.netrc; without them the login is anonymous.
"""

from __future__ import annotations

import ftplib
import netrc
import socket
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wenet_uio.base.uris import server_of, shown
from wenet_uio.dataset.storage.addresses import HostError, check_host, check_peer
from wenet_uio.dataset.storage.settings import stall
from wenet_uio.dataset.storage.versions import NoRangesError, RefusedError, Version, check_version

CHUNK = 1 << 16
"""Bytes that are received at a time."""
UNKNOWN_COMMAND = ("500", "501", "502", "504")
"""Replies of servers that lack a command, or forbid it."""


def find_version(uri: str) -> Version:
    """Return the version of an object: its size, and the time of its last change where the server
    tells it.
    """
    ftp, path = _connect(uri)
    with closing(ftp):
        return _stat(ftp, path, uri)


def read_chunks(
    uri: str, start: int, end: int | None, version: Version, one_of_many: bool = False
) -> Generator[bytes, None, None]:
    """Yield bytes `start` up to `end` (None: to the end) of an object of the given version.

    Raises:
        NoRangesError: the range is one of many; each would need a connection and a login.
    """
    if one_of_many and (start or end != version.size):
        raise NoRangesError(f"{server_of(uri)}: each byte range needs a connection of its own")

    ftp, path = _connect(uri)
    with closing(ftp):
        check_version(_stat(ftp, path, uri), version, uri)
        with _retrieve(ftp, path, start, uri) as connection:
            bytes_left = None if end is None else end - start
            while bytes_left is None or bytes_left > 0:
                chunk = connection.recv(CHUNK)[:bytes_left]
                if not chunk:
                    break

                yield chunk
                bytes_left = None if bytes_left is None else bytes_left - len(chunk)

        if end is None:
            # Without a length only this reply tells the end of the object from a cut connection.
            ftp.voidresp()


def _retrieve(ftp: ftplib.FTP, path: str, start: int, uri: str) -> socket.socket:
    """Return the connection over which the server sends the object from byte `start` on."""
    try:
        return ftp.transfercmd(f"RETR {path}", rest=start or None)
    except ftplib.error_perm as error:
        if _is_missing(error):
            raise FileNotFoundError(f"{shown(uri)}: {error}") from None
        raise RefusedError(f"{shown(uri)}: {error}") from None


def _connect(uri: str) -> tuple[ftplib.FTP, str]:
    """Return a connection with the login done, and the path of the object on the server."""
    address, _, path = uri.removeprefix("ftp://").partition("/")
    parts = urlsplit(f"//{address}")
    host, user, password = parts.hostname or "", parts.username or "", parts.password or ""
    if not user:
        user, password = _netrc_login(host)

    ftp = ftplib.FTP(timeout=stall())
    try:
        check_host(host)
        ftp.connect(host, parts.port or ftplib.FTP_PORT)
        assert ftp.sock is not None
        check_peer(ftp.sock)
        ftp.login(unquote(user), unquote(password))
        ftp.voidcmd("TYPE I")
    except BaseException as error:
        ftp.close()
        if isinstance(error, ftplib.error_perm):
            raise PermissionError(f"{shown(uri)}: {error}") from None
        if isinstance(error, HostError):
            raise RefusedError(f"{shown(uri)}: {error}") from None
        raise

    return ftp, f"/{unquote(path)}"


def _netrc_login(host: str) -> tuple[str, str]:
    """Return user and password of a host; both are empty if ~/.netrc does not name the host."""
    if not Path("~/.netrc").expanduser().exists():
        return "", ""
    user, _, password = netrc.netrc().authenticators(host) or ("", "", "")
    return user, password or ""


def _stat(ftp: ftplib.FTP, path: str, uri: str) -> Version:
    """Return the version of an object, of what the server tells.

    Raises:
        FileNotFoundError: there is no such object. A server with neither SIZE nor MDTM tells this
            only when the object is read.
    """
    replies = {"SIZE": "", "MDTM": ""}
    for command in replies:
        try:
            replies[command] = ftp.voidcmd(f"{command} {path}").split()[-1]
        except ftplib.error_perm as error:
            if _is_missing(error) and not replies["SIZE"]:
                raise FileNotFoundError(f"{shown(uri)}: {error}") from None

    size, changed = replies.values()
    known_size = int(size) if size.isdecimal() else None
    return Version(known_size, changed)


def _is_missing(error: ftplib.error_perm) -> bool:
    return not str(error).startswith(UNKNOWN_COMMAND)
