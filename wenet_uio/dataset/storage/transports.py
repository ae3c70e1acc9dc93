"""How each kind of remote store is asked for versions and bytes.

http(s) and AIStore go through requests, ftp through the standard library, every other scheme through its fsspec driver.
Endpoints and credentials come from the environment and the usual files of each driver; nothing passes through a shell.
"""

from __future__ import annotations

import base64
import concurrent.futures
import ftplib
import netrc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import fsspec
import requests

from wenet_uio.dataset.storage.versions import (
    DriverError,
    RefusedError,
    Version,
    check_version,
    shown,
    stall,
)

CHUNK = 1 << 16
"""Bytes handed on at a time."""
BLOCK = 1 << 23
"""Bytes that a driver is asked for at a time."""
ALWAYS = {"Accept-Encoding": "identity"}
DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "oss": "ossfs", "gs": "gcsfs", "gcs": "gcsfs", "hdfs": "pyarrow"}
"""Package that reads a scheme; extras of the same names."""
OSS_VARIABLES = {"key": "OSS_ACCESS_KEY_ID", "secret": "OSS_ACCESS_KEY_SECRET", "token": "OSS_SESSION_TOKEN"}
"""Credentials that ossfs does not look for itself."""
RETRIED = frozenset((408, 425, 429))
"""HTTP statuses below 500 that may pass."""


class Transport(NamedTuple):
    """What a kind of store can be asked. Both may raise anything when a connection breaks."""

    version: Callable[[str], Version]
    chunks: Callable[[str, int, int | None, Version], Iterator[bytes]]
    """The bytes from one offset up to another (None: the end) of an object of that version."""


def transport(uri: str) -> Transport:
    """The way to the store of a URI."""
    scheme = uri.partition("://")[0]
    if scheme in ("http", "https", "ais"):
        return Transport(_http_version, _http_chunks)
    if scheme == "ftp":
        return Transport(_ftp_version, _ftp_chunks)
    return Transport(_driver_version, _driver_chunks)


def driver(uri: str, attempts: int = 1) -> tuple[Any, str]:
    """The fsspec file system of a URI, and the URI's path in it.

    Args:
        attempts: of S3's own client at a request; those that read try again themselves, elsewhere.

    Raises:
        DriverError: no driver; names the command that installs it.
    """
    scheme = uri.partition("://")[0]
    options = {"config_kwargs": {"retries": {"max_attempts": attempts}}} if scheme in ("s3", "s3a") else {}
    if scheme == "oss":
        options = {name: os.environ[variable] for name, variable in OSS_VARIABLES.items() if variable in os.environ}
    try:
        return fsspec.core.url_to_fs(uri, use_listings_cache=False, **options)
    except ImportError as error:
        package = DRIVERS.get(scheme)
        mend = f"pip install {package}" if package else f"install the fsspec driver of {scheme}://"
        raise DriverError(f"{shown(uri)}: {scheme}:// needs a driver that is not installed ({error}); {mend}") from None
    except ValueError as error:
        raise DriverError(f"{shown(uri)}: {error}") from None


# ---- http(s) and AIStore's gateway

_local = threading.local()


def _session() -> requests.Session:
    """A session of this thread and process: connections do not survive a fork."""
    if getattr(_local, "owner", None) != os.getpid():
        _local.owner, _local.session = os.getpid(), requests.Session()
    return _local.session


def _url(uri: str) -> str:
    if not uri.startswith("ais://"):
        return uri
    endpoint = os.environ.get("AIS_ENDPOINT")
    if not endpoint:
        raise DriverError(f"{uri}: set AIS_ENDPOINT to the http(s) address of the AIStore gateway")
    return f"{endpoint.rstrip('/')}/v1/objects/{uri.removeprefix('ais://')}"


def _get(uri: str, method: str, headers: dict[str, str]) -> requests.Response:
    return _session().request(
        method, _url(uri), headers=ALWAYS | headers, stream=True, timeout=stall(), allow_redirects=True
    )


def _http_version(uri: str) -> Version:
    with closing(_get(uri, "HEAD", {})) as response:
        if response.ok:
            return _version_from(response)
    # A signed URL may allow nothing but GET.
    with closing(_get(uri, "GET", {"Range": "bytes=0-0"})) as response:
        if response.status_code != 416:  # the range of an empty object
            _raise_for_status(response, uri)
        return _version_from(response)


def _http_chunks(uri: str, start: int, end: int | None, version: Version) -> Iterator[bytes]:
    part = start > 0 or (end is not None and end != version.size)
    headers = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if part else {}
    with closing(_get(uri, "GET", headers)) as response:
        _raise_for_status(response, uri)
        check_version(_version_from(response), version, uri)
        skip = 0 if response.status_code == 206 else start  # a server without ranges begins at the beginning
        left = None if end is None else end - start
        for chunk in response.raw.stream(CHUNK, decode_content=False):
            kept = chunk[skip:][:left]
            skip = max(0, skip - len(chunk))
            if kept:
                yield kept
            if left is not None:
                left -= len(kept)
                if not left:
                    return


def _version_from(response: requests.Response) -> Version:
    headers = response.headers
    whole = headers.get("Content-Range", "").rpartition("/")[2]
    size = whole if response.status_code in (206, 416) else headers.get("Content-Length", "")
    md5 = ""
    if response.status_code == 200 and "Content-MD5" in headers:
        md5 = base64.b64decode(headers["Content-MD5"]).hex()
    return Version(int(size) if size.isdigit() else None, headers.get("ETag") or headers.get("Last-Modified", ""), md5)


def _raise_for_status(response: requests.Response, uri: str) -> None:
    status = response.status_code
    if status < 400:
        return
    found = f"{shown(uri)}: HTTP {status} {response.reason}"
    if status in (404, 410):
        raise FileNotFoundError(found)
    if status in (401, 403):
        raise PermissionError(found)
    if status < 500 and status not in RETRIED:
        raise RefusedError(found)
    raise ConnectionError(f"HTTP {status} {response.reason}")


# ---- ftp


def _ftp_connect(uri: str) -> tuple[ftplib.FTP, str]:
    address, _, path = uri.removeprefix("ftp://").partition("/")
    parts = urlsplit(f"//{address}")
    user, password = parts.username or "", parts.password or ""
    if not user and Path("~/.netrc").expanduser().exists():
        user, _, password = netrc.netrc().authenticators(parts.hostname) or ("", "", "")
    ftp = ftplib.FTP(timeout=stall())
    try:
        ftp.connect(parts.hostname, parts.port or ftplib.FTP_PORT)
        ftp.login(unquote(user), unquote(password))
        ftp.voidcmd("TYPE I")
    except BaseException as error:
        ftp.close()
        if isinstance(error, ftplib.error_perm):
            raise PermissionError(f"{shown(uri)}: {error}") from None
        raise
    return ftp, f"/{unquote(path)}"


def _ftp_stat(ftp: ftplib.FTP, path: str, uri: str) -> Version:
    try:
        size = ftp.size(path)
    except ftplib.error_perm as error:
        raise FileNotFoundError(f"{shown(uri)}: {error}") from None
    try:
        changed = ftp.voidcmd(f"MDTM {path}").split()[-1]
    except ftplib.error_perm:  # an old server that does not tell
        changed = ""
    return Version(size, changed)


def _ftp_version(uri: str) -> Version:
    ftp, path = _ftp_connect(uri)
    with closing(ftp):
        return _ftp_stat(ftp, path, uri)


def _ftp_chunks(uri: str, start: int, end: int | None, version: Version) -> Iterator[bytes]:
    ftp, path = _ftp_connect(uri)
    with closing(ftp):
        check_version(_ftp_stat(ftp, path, uri), version, uri)
        with ftp.transfercmd(f"RETR {path}", rest=start or None) as connection:
            left = None if end is None else end - start
            while left is None or left > 0:
                chunk = connection.recv(CHUNK)[:left]
                if not chunk:
                    break
                yield chunk
                left = None if left is None else left - len(chunk)


# ---- every other scheme


def _driver_version(uri: str) -> Version:
    filesystem, path = driver(uri)
    info = _within(filesystem.info, path)
    if info.get("type") == "directory":
        raise FileNotFoundError(f"{shown(uri)}: a folder")
    tag = next((info[name] for name in ("ETag", "etag", "generation", "mtime", "LastModified") if info.get(name)), "")
    return Version(info["size"], tag.isoformat() if isinstance(tag, datetime) else str(tag))


def _driver_chunks(uri: str, start: int, end: int | None, version: Version) -> Iterator[bytes]:
    filesystem, path = driver(uri)
    check_version(_driver_version(uri), version, uri)
    end = version.size if end is None else end
    for first in range(start, end, BLOCK):
        block = _within(filesystem.cat_file, path, start=first, end=min(end, first + BLOCK))
        yield block
        if len(block) < min(end, first + BLOCK) - first:
            return


def _within(call: Callable, *args: Any, **options: Any) -> Any:
    """A driver's call, given up after a time of silence whatever timeouts the driver has."""
    outcome: concurrent.futures.Future = concurrent.futures.Future()

    def work() -> None:
        try:
            outcome.set_result(call(*args, **options))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return outcome.result(stall())
    except concurrent.futures.TimeoutError:
        raise ConnectionError(f"no answer within {stall():g} s") from None
    except Exception as error:
        if "Credentials" in type(error).__name__:  # botocore's, which are no OSError
            raise PermissionError(str(error)) from None
        raise
