"""Reading from HTTP(S) servers, from OSS by signed URLs, and from AIStore through its HTTP gateway.

Credentials come from the URL (signed URLs too) and ~/.netrc; HTTPS_PROXY and REQUESTS_CA_BUNDLE
work as in requests. The fsspec driver of oss:// is used for globs and uploads only: it lists a whole
folder to tell the size of an object, counts the end of a byte range in another way than fsspec, and
takes the whole object for a range that it cannot have.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
from collections.abc import Generator
from contextlib import closing
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from wenet_uio.base.uris import server_of, shown
from wenet_uio.dataset.storage.settings import (
    OssSettings,
    ais_endpoint,
    has_http_settings,
    oss_settings,
    stall,
)
from wenet_uio.dataset.storage.versions import (
    BusyError,
    DriverError,
    NoRangesError,
    RefusedError,
    Version,
    check_version,
)

if TYPE_CHECKING:  # imported at the first request: local data needs no HTTP
    import requests


CHUNK = 1 << 16
"""Most bytes that are passed on at a time."""
ALWAYS = {"Accept-Encoding": "identity"}
"""Headers of every request: byte ranges count stored bytes, not compressed ones."""
RETRIED = frozenset((408, 425, 429))
"""HTTP statuses from 400 to 499 that may not be permanent."""
COMPRESSED = frozenset(("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress"))
"""Content encodings whose bytes are not those of the object."""
PACKED_NAME = re.compile(r"\.t?gz(\?|$)")
"""Some servers name the encoding of these objects, and send the object itself."""
NOT_SATISFIABLE = 416
"""HTTP status for a range that is outside of the object."""
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/")


def find_version(uri: str) -> Version:
    """Return the version of an object, from the headers of a HEAD request or of a GET of one byte."""
    with closing(_request("HEAD", uri, {})) as response:
        if response.status_code == 200:
            return _version_from(response)

    # A signed URL may allow GET only.
    with closing(_request("GET", uri, {"Range": "bytes=0-0"})) as response:
        if response.status_code != NOT_SATISFIABLE:  # the object is empty
            _raise_for_status(response, uri)
        return _version_from(response)


def read_chunks(
    uri: str, start: int, end: int | None, version: Version, one_of_many: bool = False
) -> Generator[bytes, None, None]:
    """Yield bytes `start` up to `end` (None: to the end) of an object of the given version."""
    is_range = start > 0 or (end is not None and end != version.size)
    headers = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if is_range else {}
    with closing(_request("GET", uri, headers)) as response:
        needs_range = one_of_many and is_range
        if not (needs_range and response.status_code == NOT_SATISFIABLE):
            _raise_for_status(response, uri)
        check_version(_version_from(response), version, uri)
        if needs_range:
            _require_range(response, uri, start, end)
        skip = start  # a server without ranges sends the whole object
        if response.status_code == 206:
            _check_range(response, start, end)
            skip = 0

        bytes_left = None if end is None else end - start
        yield from _bytes_within(response, skip, bytes_left)


def _bytes_within(
    response: requests.Response, skip: int, bytes_left: int | None
) -> Generator[bytes, None, None]:
    """Yield the next `bytes_left` bytes (None: all) of an answer after its first `skip` bytes."""
    # read1 gives what has arrived. `stream` would wait for whole chunks, and a server that sends a
    # byte a second would not be noticed.
    while chunk := response.raw.read1(CHUNK, decode_content=False):
        kept = chunk[skip:][:bytes_left]
        skip = max(0, skip - len(chunk))
        if kept:
            yield kept

        if bytes_left is not None:
            bytes_left -= len(kept)
            if not bytes_left:
                return


class _Sessions(threading.local):
    """One session of requests for each thread and process, since connections cannot be shared with
    a forked child.
    """

    def __init__(self) -> None:
        self._owner, self._session = os.getpid(), self._new()

    def get(self) -> requests.Session:
        """Return the session of the calling thread."""
        if self._owner != os.getpid():
            self._owner, self._session = os.getpid(), self._new()
        return self._session

    def _new(self) -> requests.Session:
        import requests

        from wenet_uio.dataset.storage.http_adapter import lead_to_stores

        session = requests.Session()
        lead_to_stores(session)
        return session


@cache
def _sessions() -> _Sessions:
    """Return the sessions, made at the first request; open connections are used again by later
    requests.
    """
    return _Sessions()


def _request(method: str, uri: str, headers: dict[str, str]) -> requests.Response:
    """Send a request and follow redirects.

    Raises:
        RefusedError: the URL, or one that it redirects to, cannot be requested, or the redirects do
            not end.
    """
    from requests import TooManyRedirects

    session, url, headers = _sessions().get(), _url(uri, method), ALWAYS | headers
    session.trust_env = has_http_settings()
    try:
        return session.request(
            method, url, headers=headers, stream=True, timeout=stall(), allow_redirects=True
        )
    except (TooManyRedirects, ValueError) as error:  # errors of URLs are ValueErrors
        raise RefusedError(f"{shown(uri)}: {shown(error)}") from None


def _url(uri: str, method: str) -> str:
    """Return the URL of a request for an object."""
    if uri.startswith("oss://"):
        return signed_url(uri, method)
    if not uri.startswith("ais://"):
        return uri

    endpoint = ais_endpoint()
    if not endpoint:
        raise DriverError(
            f"{shown(uri)}: set AIS_ENDPOINT to the http(s) address of the AIStore gateway"
        )

    return f"{endpoint.rstrip('/')}/v1/objects/{uri.removeprefix('ais://')}"


def _version_from(response: requests.Response) -> Version:
    """Return the version of an object that the headers of a response state: size, tag and MD5."""
    headers = response.headers
    # In an answer to a range, Content-Length is that of the range.
    size_in_range = headers.get("Content-Range", "").rpartition("/")[2]
    is_of_range = response.status_code in (206, NOT_SATISFIABLE)
    size = size_in_range if is_of_range else headers.get("Content-Length", "")
    md5 = ""
    if response.status_code == 200 and "Content-MD5" in headers:
        md5 = base64.b64decode(headers["Content-MD5"]).hex()
    if headers.get("Ais-Checksum-Type") == "md5":
        md5 = headers.get("Ais-Checksum-Value", "")

    tags = (
        headers.get(name, "")
        for name in ("ETag", "Ais-Checksum-Value", "Ais-Version", "Last-Modified")
    )
    known_size = int(size) if size.isdigit() else None
    return Version(known_size, next(filter(None, tags), ""), md5)


def _raise_for_status(response: requests.Response, uri: str) -> None:
    """Check that an answer has an object, or a part of it, as it is in the store.

    Raises:
        FileNotFoundError, PermissionError, RefusedError: it does not, and another attempt would not
        help.
        BusyError: the next attempt may succeed.
    """
    status = response.status_code
    if status in (200, 206):
        _refuse_compressed(response, uri)
        return

    message = f"{shown(uri)}: HTTP {status} {response.reason}"
    if status in (404, 410):
        raise FileNotFoundError(message)
    if status in (401, 403):
        raise PermissionError(message)
    if status < 500 and status not in RETRIED:
        raise RefusedError(message)

    seconds = _retry_after(response)
    later = f", Retry-After {seconds:.0f} s" if seconds else ""
    raise BusyError(f"HTTP {status} {response.reason}{later}", seconds)


def _refuse_compressed(response: requests.Response, uri: str) -> None:
    """Raise RefusedError if the server compressed the object, so that its bytes and their number
    are others.
    """
    encodings = {
        name.strip() for name in response.headers.get("Content-Encoding", "").lower().split(",")
    }
    if compressed := encodings & COMPRESSED:
        if compressed <= {"gzip", "x-gzip"} and PACKED_NAME.search(uri):
            return
        raise RefusedError(
            f"{shown(uri)}: the server sends it with Content-Encoding {', '.join(sorted(compressed))}; "
            "switch the compression off for this object"
        )


def _require_range(response: requests.Response, uri: str, start: int, end: int | None) -> None:
    """Raise NoRangesError if a server refuses a range, or sends the whole object or another range."""
    if response.status_code != 206:
        raise NoRangesError(f"{server_of(uri)} sends no byte ranges")

    try:
        _check_range(response, start, end)
    except ConnectionError:
        raise NoRangesError(f"{server_of(uri)} sends other byte ranges than asked for") from None


def _check_range(response: requests.Response, start: int, end: int | None) -> None:
    """Raise ConnectionError if the part of the object is not the one that was asked for."""
    told = response.headers.get("Content-Range", "")
    sent = RANGE.match(told)
    if not sent or int(sent[1]) != start or (end is not None and int(sent[2]) >= end):
        wanted = f"bytes {start}-{'' if end is None else end - 1}"
        raise ConnectionError(f"asked for {wanted}, but Content-Range is {told!r}")


def _retry_after(response: requests.Response) -> float:
    """Return seconds that the server asks to wait, as a number or as a date; 0 if it does not tell."""
    told = response.headers.get("Retry-After", "")
    if told.isdecimal():
        return float(told)

    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


VALID = 86_400
"""Seconds for which a URL is valid; long enough for clocks that differ."""


def signed_url(uri: str, method: str) -> str:
    """Return the URL by which an object of `oss://bucket/key` is requested with an HTTP method.

    Raises:
        DriverError: OSS_ENDPOINT is not set, or the package oss2 is not installed.
    """
    settings = oss_settings()
    if not settings.endpoint:
        raise DriverError(
            f"{shown(uri)}: set OSS_ENDPOINT, such as https://oss-cn-hangzhou.aliyuncs.com"
        )

    bucket, _, key = uri.removeprefix("oss://").partition("/")
    try:
        return _bucket(bucket, settings).sign_url(method, key, VALID, slash_safe=True)
    except ImportError as error:
        lacking = f"oss:// needs a driver that is not installed ({error}); pip install ossfs"
        raise DriverError(f"{shown(uri)}: {lacking}") from None
    except Exception as error:  # oss2 refuses the endpoint, or the name of the bucket or object
        raise DriverError(f"{shown(uri)}: {shown(error)}") from None


@lru_cache(16)
def _bucket(name: str, settings: OssSettings) -> Any:
    """Return the client of a bucket; without a key, for anonymous access."""
    import oss2  # pyright: ignore[reportMissingImports] - an extra

    if not settings.key:
        auth = oss2.AnonymousAuth()
    elif settings.token:
        auth = oss2.StsAuth(
            settings.key, settings.secret, settings.token, auth_version=settings.signature
        )
    else:
        auth = oss2.make_auth(settings.key, settings.secret, settings.signature)

    return oss2.Bucket(auth, settings.endpoint, name, region=settings.region or None)
