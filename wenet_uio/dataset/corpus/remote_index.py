"""Indexes of shards that are remote or packed: kept beside the data list, where nothing evicts them."""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from pathlib import Path

from wenet_uio.dataset.corpus.columns import is_index, read_columns, write_columns
from wenet_uio.dataset.corpus.index import Rows
from wenet_uio.dataset.corpus.shard_index import scan_shard
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version
from wenet_uio.files import written_aside

Indexed = tuple[Rows, list[tuple[str, str]]]
"""The rows of a shard, and (key, reason) of the samples that cannot be used."""


def kept_index(files: ShardFiles, layout: Layout, folder: Path) -> tuple[Rows, Version]:
    """The rows of a shard that was indexed, and the version of the tar that they are of."""
    columns, meta = read_columns(_path(files, layout, folder), one_of_many=True)
    return Rows(**columns), Version(*meta["version"])


def update_kept_index(files: ShardFiles, layout: Layout, folder: Path) -> Indexed:
    """Index a remote or packed shard unless its index is there and of its present version.

    The index that lies beside a remote shard is taken if it fits; else the whole shard is fetched and scanned.

    Raises:
        OSError: the shard cannot be had.
    """
    version, path = objects.current_version(files.tar, kept=0.0), _path(files, layout, folder)
    manifest = astuple(objects.current_version(files.manifest, kept=0.0)) if files.manifest else None
    if is_index(path):
        columns, meta = read_columns(path)
        if Version(*meta["version"]) == version and (manifest is None or tuple(meta["manifest"]) == manifest):
            return Rows(**columns), [tuple(item) for item in meta["bad"]]
    rows, bad = _from_sidecar(files, layout, version) or _scanned(files, layout, version)
    with written_aside(path) as file:
        write_columns(file, rows.columns(), {"version": astuple(version), "manifest": manifest, "bad": bad})
    return rows, bad


def _from_sidecar(files: ShardFiles, layout: Layout, version: Version) -> Indexed | None:
    sidecar = objects.beside(files.tar, f"{layout.suffix}.idx")
    if files.manifest or not objects.exists(sidecar):
        return None
    with objects.held_path(sidecar) as path:
        if not is_index(path):
            return None
        columns, meta = read_columns(path)
    return (Rows(**columns), [tuple(item) for item in meta["bad"]]) if meta["tar_bytes"] == version.size else None


def _scanned(files: ShardFiles, layout: Layout, version: Version) -> Indexed:
    with objects.open_whole(files.tar, version) as file:
        return scan_shard(files, layout, str(file.name))


def _path(files: ShardFiles, layout: Layout, folder: Path) -> Path:
    name = hashlib.blake2b(f"{files}{layout.suffix}".encode(), digest_size=16).hexdigest()
    return folder / name[:2] / f"{name}.idx"
