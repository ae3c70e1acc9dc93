"""Environment variables of storage. No other module of the data layer reads them.

Every function reads its variable when it is called, so that a process inherits the settings of its
parent.
"""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from wenet_uio.base.messages import warn_once
from wenet_uio.base.uris import shown

DEFAULT_DEADLINE = 300.0
"""Seconds."""
MOST_DEADLINE = 1e8
"""Seconds, about three years. Sockets refuse much longer times."""
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
STORE_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "oss": ("OSS_ENDPOINT", "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "hdfs": ("HADOOP_HOME", "CLASSPATH"),
}
"""Scheme -> variables with the endpoint and credentials of the store. Drivers may use files and
services as well."""

STORES = "WENET_UIO_STORES"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
HTTP_VARIABLES = (
    *PROXIES,
    *map(str.upper, PROXIES),
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NETRC",
)
NETRC = ("~/.netrc", "~/_netrc")
"""Variables and files that requests reads."""


class SettingError(ValueError):
    """A variable holds no valid value. Every object is refused, so no sample is to blame."""


def cache_folder() -> Path:
    """Return the folder that belongs to the cache alone: `uio1` in WENET_UIO_CACHE, else in
    NEMO_DATA_STORE_CACHE_DIR, else in ~/.cache/wenet_uio.

    Raises:
        RuntimeError: the user has no home folder, and no variable is set.
    """
    folder = os.environ.get("WENET_UIO_CACHE") or os.environ.get("NEMO_DATA_STORE_CACHE_DIR")
    return (Path(folder) if folder else Path.home() / ".cache" / "wenet_uio") / "uio1"


def cache_bytes() -> int | None:
    """Return the maximum size of the cache in bytes: WENET_UIO_CACHE_BYTES; None if it is not set.

    Raises:
        SettingError: the variable does not hold a number of bytes.
    """
    limit = os.environ.get("WENET_UIO_CACHE_BYTES")
    try:
        return parse_bytes(limit) if limit else None
    except ValueError as error:
        raise SettingError(f"WENET_UIO_CACHE_BYTES: {error}") from None


def parse_bytes(text: str) -> int:
    """Convert a number with an optional unit K, M, G or T (powers of 1024) to bytes.

    Raises:
        ValueError: the text is not such a number.
    """
    number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not number:
        raise ValueError(f"{text!r} is not a number of bytes; write for example 500G")
    return int(float(number[1]) * UNITS[number[2].upper()])


def deadline() -> float:
    """Return seconds without progress after which reading an object fails: WENET_UIO_DEADLINE, such
    as 90, 90s, 5m or 1h.

    A longer time than MOST_DEADLINE counts as that, with a warning.

    Raises:
        SettingError: the variable is no time.
    """
    text = os.environ.get("WENET_UIO_DEADLINE", "").strip()
    if not text:
        return DEFAULT_DEADLINE

    number, unit = (text[:-1], text[-1]) if text[-1] in SECONDS else (text, "s")
    try:
        seconds = float(number) * SECONDS[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise SettingError(
            f"the variable WENET_UIO_DEADLINE is {text!r}; expected a time such as 90, 90s, 5m or 1h"
        )

    if seconds > MOST_DEADLINE:
        warn_once(
            f"the variable WENET_UIO_DEADLINE is {text!r}, more than {MOST_DEADLINE:g} s; "
            f"{MOST_DEADLINE:g} s (three years) are taken"
        )

    return min(seconds, MOST_DEADLINE)


def stall() -> float:
    """Return seconds without data after which a connection is closed and opened again: a tenth of
    the deadline.
    """
    return max(0.2, deadline() / 10)


def further_stores() -> frozenset[str]:
    """Return schemes of further drivers, and hosts, that lists may name: WENET_UIO_STORES, such as
    `abfs,169.254.7.1`.
    """
    return frozenset(re.findall(r"[^\s,]+", os.environ.get(STORES, "").lower()))


def ais_endpoint() -> str | None:
    """Return the address of the AIStore gateway (http or https): AIS_ENDPOINT; None if it is not
    set.
    """
    return os.environ.get("AIS_ENDPOINT") or None


def has_http_settings() -> bool:
    """Tell whether the environment has anything that requests looks for: proxies, certificates,
    or a file of passwords. Without them, no request needs to search it, which takes half a
    millisecond. Other systems than Linux have settings of proxies elsewhere.
    """
    return (
        sys.platform != "linux"
        or any(name in os.environ for name in HTTP_VARIABLES)
        or any(os.path.exists(os.path.expanduser(name)) for name in NETRC)  # noqa: PTH110, PTH111 - runs for every request
    )


class OssSettings(NamedTuple):
    """Where and as whom objects of OSS are read; empty where a variable is not set."""

    endpoint: str
    key: str
    secret: str
    token: str
    region: str
    """Such as cn-hangzhou; with a region, requests are signed by version 4."""

    @property
    def signature(self) -> str:
        """Version of the signatures, as oss2 names it."""
        return "v4" if self.region else "v1"

    def credentials(self) -> dict[str, str]:
        """Return arguments of ossfs, which does not read the variables itself; those that are set."""
        values = {"key": self.key, "secret": self.secret, "token": self.token}
        return {name: value for name, value in values.items() if value}


def oss_settings() -> OssSettings:
    """OSS_ENDPOINT, OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET, OSS_SESSION_TOKEN and OSS_REGION."""
    return OssSettings(
        endpoint=os.environ.get("OSS_ENDPOINT", ""),
        key=os.environ.get("OSS_ACCESS_KEY_ID", ""),
        secret=os.environ.get("OSS_ACCESS_KEY_SECRET", ""),
        token=os.environ.get("OSS_SESSION_TOKEN", ""),
        region=os.environ.get("OSS_REGION", "").removeprefix("oss-"),
    )


def describe_store(scheme: str) -> str:
    """Return the variables of a store for an error message: endpoints with their value, of others
    only whether they are set.

    Empty for a scheme without known variables.
    """
    return ", ".join(_describe(variable) for variable in STORE_VARIABLES.get(scheme, ()))


def _describe(variable: str) -> str:
    value = os.environ.get(variable)
    if value and "ENDPOINT" in variable:
        return f"{variable}={shown(value)}"
    return f"{variable} {'set' if value else 'not set'}"
