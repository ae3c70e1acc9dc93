"""Reading from HTTP(S) servers, and from AIStore through its HTTP gateway.

Credentials come from the URL (signed URLs too) and ~/.netrc; HTTPS_PROXY and REQUESTS_CA_BUNDLE work as in requests.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Generator
from contextlib import closing
from functools import cache

import requests

from wenet_uio.dataset.storage.settings import ais_endpoint, stall
from wenet_uio.dataset.storage.versions import DriverError, RefusedError, Version, check_version
from wenet_uio.uris import shown

CHUNK = 1 << 16
"""Bytes that are passed on at a time."""
ALWAYS = {"Accept-Encoding": "identity"}
"""Headers of every request: byte ranges count stored bytes, not compressed ones."""
RETRIED = frozenset((408, 425, 429))
"""HTTP statuses from 400 to 499 that may not be permanent."""


def find_version(uri: str) -> Version:
    """Version of an object, from the headers of a HEAD request or of a GET of one byte."""
    with closing(_request("HEAD", uri, {})) as response:
        if response.ok:
            return _version_from(response)
    # A signed URL may allow GET only.
    with closing(_request("GET", uri, {"Range": "bytes=0-0"})) as response:
        if response.status_code != 416:  # the object is empty, so that the range is not satisfiable
            _raise_for_status(response, uri)
        return _version_from(response)


def read_chunks(uri: str, start: int, end: int | None, version: Version) -> Generator[bytes, None, None]:
    """Bytes `start` up to `end` (None: to the end) of an object of the given version."""
    part = start > 0 or (end is not None and end != version.size)
    headers = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if part else {}
    with closing(_request("GET", uri, headers)) as response:
        _raise_for_status(response, uri)
        check_version(_version_from(response), version, uri)
        skip = 0 if response.status_code == 206 else start  # a server without ranges sends the whole object
        yield from _within(response, skip, None if end is None else end - start)


def _within(response: requests.Response, skip: int, left: int | None) -> Generator[bytes, None, None]:
    """The next `left` bytes (None: all) of an answer after its first `skip` bytes."""
    for chunk in response.raw.stream(CHUNK, decode_content=False):
        kept = chunk[skip:][:left]
        skip = max(0, skip - len(chunk))
        if kept:
            yield kept
        if left is not None:
            left -= len(kept)
            if not left:
                return


class _Sessions(threading.local):
    """One session of requests for each thread and process, since connections cannot be shared with a forked child."""

    def __init__(self) -> None:
        self._owner, self._session = os.getpid(), requests.Session()

    def get(self) -> requests.Session:
        """The session of the calling thread."""
        if self._owner != os.getpid():
            self._owner, self._session = os.getpid(), requests.Session()
        return self._session


@cache
def _sessions() -> _Sessions:
    """The sessions, made at the first request; open connections are used again by later requests."""
    return _Sessions()


def _request(method: str, uri: str, headers: dict[str, str]) -> requests.Response:
    return (
        _sessions()
        .get()
        .request(method, _url(uri), headers=ALWAYS | headers, stream=True, timeout=stall(), allow_redirects=True)
    )


def _url(uri: str) -> str:
    if not uri.startswith("ais://"):
        return uri
    endpoint = ais_endpoint()
    if not endpoint:
        raise DriverError(f"{shown(uri)}: set AIS_ENDPOINT to the http(s) address of the AIStore gateway")
    return f"{endpoint.rstrip('/')}/v1/objects/{uri.removeprefix('ais://')}"


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
