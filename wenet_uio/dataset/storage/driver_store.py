"""Reading from every store that has an fsspec driver: s3, gs, hdfs and others.

Endpoints and credentials come from the environment and the usual files of each driver.
"""

from __future__ import annotations

import concurrent.futures
import json
import threading
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage.addresses import HostError, check_addresses, check_scheme
from wenet_uio.dataset.storage.settings import oss_settings, stall
from wenet_uio.dataset.storage.versions import DriverError, RefusedError, Version, check_version

BLOCK = 1 << 23
"""Bytes that a driver is asked for at a time."""
DRIVERS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "oss": "ossfs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hdfs": "pyarrow",
}
"""Scheme -> package with its driver; the extras of wenet_uio have the names of the schemes."""
BUCKETS = ("s3", "s3a", "oss", "gs", "gcs", "hf")
"""Schemes whose URIs name a bucket or a repository; those of others name a host."""
BROKEN_ANSWERS = (UnicodeError, json.JSONDecodeError)
"""Errors of values that come from an answer that is cut short; another attempt may have all of it."""
TAGS = ("ETag", "etag", "generation", "mtime", "LastModified", "modificationTime")
"""Fields of a driver's answer that change with the object, in the order of preference."""


def driver(uri: str, attempts: int = 1) -> tuple[Any, str]:
    """Return the fsspec file system of a URI, and the path of the URI in that file system.

    Args:
        attempts: attempts that the client of S3 makes for a request; `transfer.py` repeats reads
            itself.

    Raises:
        DriverError: the scheme is not allowed, or its driver is not installed; the message names
            the command that installs it.
        RefusedError: the host is no store.
    """
    check_scheme(uri)
    if "::" in uri:  # fsspec would take the rest for another store
        raise DriverError(f"{shown(uri)}: '::' in the name of an object is not read; rename it")
    import fsspec.core  # only here: most processes read no such store

    scheme = uri.partition("://")[0]
    if scheme not in BUCKETS:
        try:
            check_addresses(urlsplit(uri).hostname or "")
        except HostError as error:
            raise RefusedError(f"{shown(uri)}: {error}") from None

    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        options |= {"config_kwargs": {"retries": {"max_attempts": attempts}}}
    elif scheme == "oss":
        # ossfs cannot list without its cache, so each call gets a driver of its own
        options = {"skip_instance_cache": True, **oss_settings().credentials()}

    try:
        filesystem, path = fsspec.core.url_to_fs(uri, **options)
    except ImportError as error:
        package = DRIVERS.get(scheme)
        mend = f"pip install {package}" if package else f"install the fsspec driver of {scheme}://"
        raise DriverError(
            f"{shown(uri)}: {scheme}:// needs a driver that is not installed ({shown(error)}); "
            f"{mend}"
        ) from None
    except ValueError as error:
        raise DriverError(f"{shown(uri)}: {shown(error)}") from None

    if scheme == "webhdfs":  # its answers redirect to other hosts
        from wenet_uio.dataset.storage.http_adapter import lead_to_stores

        lead_to_stores(filesystem.session)
    return filesystem, path


def find_version(uri: str) -> Version:
    """Return the version of an object, from what the driver tells about it.

    Raises:
        DriverError: the driver does not read such a URI. Also the errors of `driver` and `_call`.
    """
    filesystem, path = driver(uri)
    try:
        info = _call(filesystem.info, path)
    except (ValueError, NotImplementedError) as error:
        if isinstance(error, BROKEN_ANSWERS):
            raise
        # The URI has a wrong form, as hf://name without a file: it would be wrong again.
        raise DriverError(f"{shown(uri)}: {shown(error)}") from None
    if info.get("type") == "directory":
        raise FileNotFoundError(f"{shown(uri)}: a folder, not an object")

    return version_of_info(info)


def version_of_info(info: Mapping[str, Any]) -> Version:
    """Return the version of an object from the answer of its driver."""
    tag = next((info[name] for name in TAGS if info.get(name)), "")
    tag = tag.isoformat() if isinstance(tag, datetime) else str(tag)
    return Version(info["size"], tag)


def read_chunks(
    uri: str, start: int, end: int | None, version: Version, one_of_many: bool = False
) -> Generator[bytes, None, None]:
    """Yield bytes `start` up to `end` (None: to the end) of an object of the given version.

    The version is asked for before the bytes, since answers do not state it; not if the range is
    one of many.
    """
    filesystem, path = driver(uri)
    if not one_of_many:
        current = find_version(uri)
        check_version(current, version, uri)
        end = current.size if end is None else end

    while end is None or start < end:
        last = start + BLOCK if end is None else min(end, start + BLOCK)
        block = _call(filesystem.cat_file, path, start=start, end=last)
        yield block
        if len(block) < last - start:
            return

        start = last


def _call(call: Callable, *args: Any, **options: Any) -> Any:
    """Call a driver, and give up after some seconds of silence, whatever timeouts the driver has.

    Raises:
        ConnectionError: no answer. PermissionError: no credentials. RefusedError: the store leads to
            a host that is none. Otherwise the error of the driver.
    """
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
    except HostError as error:
        raise RefusedError(str(error)) from None
    except Exception as error:
        if "Credentials" in type(error).__name__:  # errors of botocore, which are not OSError
            raise PermissionError(shown(error)) from None
        raise
