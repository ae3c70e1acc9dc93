"""Reading from FTP servers, with the standard library.

User and password come from the URL or ~/.netrc; without them the login is anonymous.
"""

from __future__ import annotations

import ftplib
import netrc
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wenet_uio.dataset.storage.settings import stall
from wenet_uio.dataset.storage.versions import Version, check_version
from wenet_uio.uris import shown

CHUNK = 1 << 16
"""Bytes that are received at a time."""


def find_version(uri: str) -> Version:
    """Return the version of an object: its size, and the time of its last change where the server
    tells it.
    """
    ftp, path = _connect(uri)
    with closing(ftp):
        return _stat(ftp, path, uri)


def read_chunks(
    uri: str, start: int, end: int | None, version: Version
) -> Generator[bytes, None, None]:
    """Yield bytes `start` up to `end` (None: to the end) of an object of the given version."""
    ftp, path = _connect(uri)
    with closing(ftp):
        check_version(_stat(ftp, path, uri), version, uri)
        with ftp.transfercmd(f"RETR {path}", rest=start or None) as connection:
            bytes_left = None if end is None else end - start
            while bytes_left is None or bytes_left > 0:
                chunk = connection.recv(CHUNK)[:bytes_left]
                if not chunk:
                    break

                yield chunk
                bytes_left = None if bytes_left is None else bytes_left - len(chunk)


def _connect(uri: str) -> tuple[ftplib.FTP, str]:
    """Return a connection with the login done, and the path of the object on the server."""
    address, _, path = uri.removeprefix("ftp://").partition("/")
    parts = urlsplit(f"//{address}")
    host, user, password = parts.hostname or "", parts.username or "", parts.password or ""
    if not user:
        user, password = _from_netrc(host)

    ftp = ftplib.FTP(timeout=stall())
    try:
        ftp.connect(host, parts.port or ftplib.FTP_PORT)
        ftp.login(unquote(user), unquote(password))
        ftp.voidcmd("TYPE I")
    except BaseException as error:
        ftp.close()
        if isinstance(error, ftplib.error_perm):
            raise PermissionError(f"{shown(uri)}: {error}") from None
        raise

    return ftp, f"/{unquote(path)}"


def _from_netrc(host: str) -> tuple[str, str]:
    """User and password of a host; both empty if ~/.netrc does not name the host."""
    if not Path("~/.netrc").expanduser().exists():
        return "", ""
    user, _, password = netrc.netrc().authenticators(host) or ("", "", "")
    return user, password or ""


def _stat(ftp: ftplib.FTP, path: str, uri: str) -> Version:
    try:
        size = ftp.size(path)
    except ftplib.error_perm as error:
        raise FileNotFoundError(f"{shown(uri)}: {error}") from None

    try:
        changed = ftp.voidcmd(f"MDTM {path}").split()[-1]
    except ftplib.error_perm:  # an old server without this command
        changed = ""

    return Version(size, changed)
