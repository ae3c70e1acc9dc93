"""Where the bytes are: local paths, file:// and remote stores look the same from here on."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
from pathlib import Path
from urllib.parse import unquote

import fsspec

from wenet_uio.files import written_aside

PACKED = (".tar.gz", ".tgz")
"""What is unpacked before it is read."""


def is_remote(uri: str | Path) -> bool:
    """Whether `uri` is in a remote store: neither a local path nor file://."""
    return "://" in str(uri) and not str(uri).startswith("file://")


def local_path(uri: str | Path) -> str:
    """Path of a local file with the whole contents of `uri`, fetched and unpacked into the cache where it has to be.

    Raises:
        OSError: it cannot be had.
    """
    path = _without_scheme(uri)
    if not is_remote(path) and not path.endswith(PACKED):
        return path
    copy = cache_dir() / hashlib.sha256(path.encode()).hexdigest()
    if not copy.exists():
        with fsspec.open(path, "rb") as source, written_aside(copy) as file:
            plain = gzip.open(source) if path.split("?")[0].endswith(PACKED) else source
            shutil.copyfileobj(plain, file)
    return str(copy)


def exists(uri: str | Path) -> bool:
    """Whether there is such a file or object."""
    path = _without_scheme(uri)
    if not is_remote(path):
        return os.path.exists(path)
    filesystem, name = fsspec.core.url_to_fs(path)
    return filesystem.exists(name)


def read_bytes(uri: str | Path) -> bytes:
    """The whole contents.

    Raises:
        OSError: it cannot be had.
    """
    return Path(local_path(uri)).read_bytes()


def cache_dir() -> Path:
    """Where copies are kept."""
    return Path(os.environ.get("WENET_UIO_CACHE") or Path.home() / ".cache" / "wenet_uio")


def _without_scheme(uri: str | Path) -> str:
    text = str(uri)
    return unquote(text.removeprefix("file://")) if text.startswith("file://") else text
