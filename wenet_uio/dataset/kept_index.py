"""Indexes of shards that are remote or packed: kept beside the data list, where nothing evicts them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

from wenet_uio.dataset import storage
from wenet_uio.dataset.columns import is_index, read_columns, write_columns
from wenet_uio.dataset.index import Rows
from wenet_uio.dataset.transports import Version
from wenet_uio.files import written_aside

Indexed = tuple[Rows, list[tuple[str, str]]]
"""The rows of a shard, and (key, reason) of the samples that cannot be used."""


def kept_index(uri: str, folder: Path) -> tuple[Rows, Version]:
    """The rows of a shard that was indexed, and the version that they are of."""
    columns, meta = read_columns(_path(uri, folder))
    return Rows(**columns), Version(*meta["version"])


def update_kept_index(uri: str, folder: Path, scan: Callable[[str], Indexed]) -> Indexed:
    """Index a remote or packed shard unless its index is there and of its present version.

    The index that lies beside a remote shard is taken if it fits; else the whole shard is fetched, and `scan` is given
    the path of its copy.

    Raises:
        OSError: the shard cannot be had.
    """
    version, path = storage.current_version(uri, kept=0.0), _path(uri, folder)
    if is_index(path):
        columns, meta = read_columns(path)
        if Version(*meta["version"]) == version:
            return Rows(**columns), [tuple(item) for item in meta["bad"]]
    rows, bad = _from_sidecar(uri, version) or _scanned(uri, version, scan)
    meta = {"version": astuple(version), "bad": bad}
    with written_aside(path) as file:
        write_columns(file, rows.columns(), meta)
    return rows, bad


def _from_sidecar(uri: str, version: Version) -> Indexed | None:
    sidecar = storage.beside(uri, ".idx")
    if not storage.exists(sidecar):
        return None
    with storage.held_path(sidecar) as path:
        if not is_index(path):
            return None
        columns, meta = read_columns(path)
    return (Rows(**columns), [tuple(item) for item in meta["bad"]]) if meta["tar_bytes"] == version.size else None


def _scanned(uri: str, version: Version, scan: Callable[[str], Indexed]) -> Indexed:
    with storage.open_whole(uri, version) as file:
        return scan(str(file.name))


def _path(uri: str, folder: Path) -> Path:
    name = hashlib.blake2b(uri.encode(), digest_size=16).hexdigest()
    return folder / name[:2] / f"{name}.idx"
