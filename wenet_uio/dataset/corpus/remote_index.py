"""Indexes of shards that are remote or compressed: kept in a folder beside the data list, where nothing evicts them.

`data.list.idx.d/` holds one index for each such shard, with the version of the indexed tar. If an index lies beside a
remote tar (`x.tar.idx`) and states the size of the tar, it is copied. Otherwise the tar is fetched and scanned.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from pathlib import Path

from wenet_uio.dataset.corpus.columns import is_index
from wenet_uio.dataset.corpus.index import Indexed, Rows, read_index, write_index
from wenet_uio.dataset.corpus.shard_index import scan_shard
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version


def kept_index(files: ShardFiles, layout: Layout, folder: Path) -> tuple[Rows, Version]:
    """The rows of a shard that was indexed before, and the version of its tar at that time."""
    rows, _, meta = read_index(_path(files, layout, folder), one_of_many=True)
    return rows, Version(*meta["version"])


def update_kept_index(files: ShardFiles, layout: Layout, folder: Path) -> Indexed:
    """Index a remote or compressed shard, unless `folder` has an index of its current version.

    Raises:
        OSError: the shard cannot be fetched.
    """
    version, path = objects.current_version(files.tar, kept=0.0), _path(files, layout, folder)
    manifest = astuple(objects.current_version(files.manifest, kept=0.0)) if files.manifest else None
    if is_index(path):
        rows, bad, meta = read_index(path)
        if Version(*meta["version"]) == version and (manifest is None or tuple(meta["manifest"]) == manifest):
            return rows, bad
    rows, bad = _from_sidecar(files, layout, version) or _scanned(files, layout, version)
    write_index(path, rows, bad, {"version": astuple(version), "manifest": manifest})
    return rows, bad


def _from_sidecar(files: ShardFiles, layout: Layout, version: Version) -> Indexed | None:
    """The index that lies beside a remote tar, if it is an index of this tar."""
    sidecar = objects.beside(files.tar, f"{layout.suffix}.idx")
    if files.manifest or not objects.exists(sidecar):
        return None
    with objects.held_path(sidecar) as path:
        if not is_index(path):
            return None
        rows, bad, meta = read_index(path)
    return (rows, bad) if meta["tar_bytes"] == version.size else None


def _scanned(files: ShardFiles, layout: Layout, version: Version) -> Indexed:
    with objects.held_path(files.tar, version) as path:
        return scan_shard(files, layout, path)


def _path(files: ShardFiles, layout: Layout, folder: Path) -> Path:
    name = hashlib.blake2b(f"{files}{layout.suffix}".encode(), digest_size=16).hexdigest()
    return folder / name[:2] / f"{name}.idx"
