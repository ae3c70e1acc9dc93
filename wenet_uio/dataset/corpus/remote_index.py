"""Indexes of shards that are remote or compressed: kept in a folder beside the data list, where
nothing evicts them.

`data.list.idx.d/` holds one index for each such shard, with the version of the indexed tar. If the
folder of the list cannot be written, these indexes are in the cache, which does not evict them. If
an index lies beside a remote tar (`x.tar.idx`) and states the size of the tar, it is copied.
Otherwise the tar is scanned: by byte ranges, or, where that costs more, after it was fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from wenet_uio.base.crashes import is_careful
from wenet_uio.dataset.corpus.index import (
    Indexed,
    Rows,
    find_index,
    read_index,
    write_index,
)
from wenet_uio.dataset.corpus.range_scan import scan_by_range
from wenet_uio.dataset.corpus.shard_index import Comparison, kept_path, lost_since, stale
from wenet_uio.dataset.corpus.shard_scan import scan_shard
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import places_of
from wenet_uio.dataset.storage.ranged_object import by_range
from wenet_uio.dataset.storage.versions import Version

SMALL = 1 << 20
"""Bytes; a tar of up to this size is fetched as a whole."""


def kept_index(files: ShardFiles, layout: Layout, folder: Path) -> tuple[Rows, Version]:
    """Return the rows of a shard that was indexed before, and the version of its tar at that time.

    Raises:
        ListError: the index was removed.
    """
    places = [place for place in places_of(kept_path(files, folder, layout)) if place.is_file()]
    if not places:
        raise ListError(
            f"{files.tar}: its index in {folder} was removed; delete the index of the list to redo "
            "it"
        )

    newest = max(places, key=lambda place: place.stat().st_mtime_ns)
    rows, _, meta = read_index(newest, one_of_many=True)
    return rows, Version(*meta["version"])


def update_kept_index(
    files: ShardFiles,
    layout: Layout,
    folder: Path,
    compare: Comparison = "pages",
    requests: int = 1,
) -> Indexed:
    """Index a remote or compressed shard, unless `folder` has an index of its current
    version.

    Args:
        compare: "all" fetches and scans the shard in any case.
        requests: most requests for byte ranges at a time.

    Raises:
        OSError: the shard cannot be fetched.
    """
    version, path = objects.current_version(files.tar, kept=0.0), kept_path(files, folder, layout)
    manifest = (
        astuple(objects.current_version(files.manifest, kept=0.0)) if files.manifest else None
    )
    stored = list(filter(None, map(find_index, places_of(path))))
    current = next((index for index in stored if _is_of(index.meta, version, manifest)), None)
    if current is not None and compare != "all":
        return current.rows, current.bad

    former = current or next(iter(stored), None)
    indexed = None if compare == "all" else _without_fetching(files, layout, version, requests)
    rows, bad = indexed or _scanned(files, layout, version)
    bad += lost_since(former, rows, bad, files.tar)
    write_index(places_of(path), rows, bad, {"version": astuple(version), "manifest": manifest})

    return rows, bad + stale(current, rows, files.tar, compare)


def _without_fetching(
    files: ShardFiles, layout: Layout, version: Version, requests: int
) -> Indexed | None:
    """Index a shard without fetching all of it; None if that is not possible, or costs more."""
    return _from_sidecar(files, layout, version) or _scanned_by_range(
        files, layout, version, requests
    )


def _is_of(meta: Mapping[str, Any], version: Version, manifest: tuple | None) -> bool:
    """Tell whether an index is of these versions of tar and manifest."""
    return Version(*meta["version"]) == version and (
        manifest is None or tuple(meta["manifest"]) == manifest
    )


def _from_sidecar(files: ShardFiles, layout: Layout, version: Version) -> Indexed | None:
    """Return the index that lies beside a remote tar, if it is an index of this tar."""
    sidecar = objects.beside(files.tar, f"{layout.suffix}.idx")
    if files.manifest or objects.file_of(files.tar) != files.tar or not objects.exists(sidecar):
        return None

    with objects.held_path(sidecar) as path:
        index = find_index(path)

    if index is None:
        return None

    rows, bad, meta = index
    return (rows, bad) if meta["tar_bytes"] == version.size else None


def _scanned_by_range(
    files: ShardFiles, layout: Layout, version: Version, requests: int
) -> Indexed | None:
    """Scan a remote tar by byte ranges; None if that is not possible, or costs more than to fetch
    the tar.
    """
    is_in_store = objects.is_remote(files.tar) and not objects.is_packed(files.tar)
    # A careful process forks before it decodes, and a forked process must not use connections.
    if not is_in_store or (version.size or 0) <= SMALL or is_careful():
        return None

    copy = objects.open_present(files.tar, version)
    if copy is not None:
        with copy:
            return scan_shard(files, layout, copy.name)

    return by_range(files.tar, lambda: scan_by_range(files, layout, version, requests))


def _scanned(files: ShardFiles, layout: Layout, version: Version) -> Indexed:
    with objects.held_path(files.tar, version) as path:
        return scan_shard(files, layout, path)
