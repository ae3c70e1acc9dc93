"""Indexes of shards that are remote or compressed: kept in a folder beside the data list, where
nothing evicts them.

`data.list.idx.d/` holds one index for each such shard, with the version of the indexed tar. If the
folder of the list cannot be written, these indexes are in the cache, which does not evict them. If
an index lies beside a remote tar (`x.tar.idx`) and states the size of the tar, it is copied.
Otherwise the tar is scanned: by byte ranges, or, where that costs more, after it was fetched.

The scan by byte ranges is that of a local tar, over an object that fetches what is asked for, so
both give the same index. Walkers come before it. They visit the members in the order of the tar, in
several parts of a large tar at a time, and the object keeps what they read. A walker that errs, as in
a damaged tar, costs requests: its scan then asks the store for what is missing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.partial_file import PartialFile
from wenet_uio.audio.read import audio_info
from wenet_uio.base.crashes import is_careful
from wenet_uio.dataset.corpus.index import (
    Indexed,
    Rows,
    find_index,
    read_index,
    write_index,
)
from wenet_uio.dataset.corpus.shard_index import (
    Comparison,
    kept_path,
    lost_since,
    scan,
    scan_shard,
    stale,
)
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import Layout, is_audio, split_name
from wenet_uio.dataset.formats.tar_headers import BLOCK, FILES, Header, HeaderError, HeaderReader
from wenet_uio.dataset.formats.tar_members import MAX_SIZE, Member, plain_name
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import places_of
from wenet_uio.dataset.storage.ranged_object import KEPT_BYTES, NEAR, RangedObject, by_range
from wenet_uio.dataset.storage.versions import Version

FIRST_SAMPLES = 32
"""Members with audio by which the size of the others is judged."""
SAMPLES_OF_WALKER = 32
"""A walker begins with a search for a header, through half a sample on average. It is worth that
for so many samples."""
SEARCHED_SAMPLES = 4
"""Samples of average size that are searched for a header."""

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
    current = None
    for index in stored:
        has_manifest = manifest is None or tuple(index.meta["manifest"]) == manifest
        if Version(*index.meta["version"]) == version and has_manifest:
            current = index
            break

    if current is not None and compare != "all":
        return current.rows, current.bad

    former = current or next(iter(stored), None)
    indexed = None
    if compare != "all":
        indexed = _sidecar_index(files, layout, version)
        indexed = indexed or _scanned_by_range(files, layout, version, requests)
    if indexed is None:
        with objects.held_path(files.tar, version) as copy:
            indexed = scan_shard(files, layout, copy)

    rows, bad = indexed
    bad += lost_since(former, rows, bad, files.tar)
    write_index(places_of(path), rows, bad, {"version": astuple(version), "manifest": manifest})

    return rows, bad + stale(current, rows, files.tar, compare)


def _sidecar_index(files: ShardFiles, layout: Layout, version: Version) -> Indexed | None:
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


def scan_by_range(
    files: ShardFiles, layout: Layout, version: Version, walkers: int
) -> Indexed | None:
    """Find the samples of a remote tar as `scan_shard` does.

    Args:
        version: of the tar; it states a size.
        walkers: most requests at a time.

    Returns:
        None for a tar of samples so small that it is better read as a whole.

    Raises:
        NoRangesError: the store sends whole objects only, or ranges at a high price.
        OSError: the tar cannot be read, or has another version.
    """
    tar = _RemoteTar(RangedObject(files.tar, version))
    if not tar.walk_all(walkers):
        return None

    indexed = scan(files, layout, tar.data, tar.info_of)
    tar.data.check_version()
    return indexed


class _RemoteTar:
    """A remote tar, and what is known of the audio in it."""

    def __init__(self, data: RangedObject) -> None:
        self.data = data
        self._infos: dict[tuple[int, int], AudioInfo] = {}
        """By offset and size of the audio."""

    def info_of(self, member: Member) -> AudioInfo:
        """Return the length and format of the audio in a member.

        Raises:
            AudioError: the audio cannot be read. OSError: the store does not give it.
        """
        place = member.offset, member.size
        if place not in self._infos:
            self._infos[place] = self._read_info(member)
        return self._infos[place]

    def _read_info(self, member: Member) -> AudioInfo:
        """Read rate and length of the audio of a member, from as few of its bytes as its header needs."""

        def read_between(start: int, end: int) -> bytes:
            return self.data.between(member.offset + start, member.offset + end)

        file = PartialFile(member.size, read_between)
        try:
            return audio_info(file)
        finally:
            if file.failure is not None:
                raise file.failure  # whatever the decoder made of it

    def walk_all(self, walkers: int) -> bool:
        """Visit the members; returns False, after the first of them, if the samples are small."""
        size = len(self.data)
        first = HeaderReader(self.data)
        count = self._walk(first, size, FIRST_SAMPLES)
        mean = first.position // max(1, count)
        if count == FIRST_SAMPLES and mean < NEAR:
            return False

        left = max(0, size - first.position)
        walkers = max(1, min(walkers, left // max(1, mean * SAMPLES_OF_WALKER)))
        starts = [
            first.position + left * number // walkers // BLOCK * BLOCK
            for number in range(1, walkers)
        ]
        readers = [first, *(HeaderReader(self.data, start - 1) for start in starts)]

        def walk_part(reader: HeaderReader, end: int) -> None:
            is_found = reader is first or (
                reader.resume(reader.position + SEARCHED_SAMPLES * mean) is not None
            )
            if is_found:
                self._walk(reader, end)

        with ThreadPoolExecutor(walkers) as pool:
            list(pool.map(walk_part, readers, [*starts, size]))
        return True

    def _walk(self, reader: HeaderReader, end: int, most: int | None = None) -> int:
        """Visit members up to byte `end`, up to damage, or until `most` of them had audio; returns
        how many had.
        """
        count = 0
        while reader.position < end and count != most:
            try:
                header = reader.next()
            except HeaderError:
                break
            if header is None:
                break

            count += self._visit(header)
        return count

    def _visit(self, header: Header) -> bool:
        """Read what a scan reads of a member; tells whether its name is one of audio."""
        if header.kind not in FILES or header.problem or header.size > MAX_SIZE:
            return False

        member = Member(plain_name(header.name), header.offset, header.size)
        _, field = split_name(member.name, "last")
        if is_audio(field):
            with suppress(AudioError):  # the scan gets it again, and reports it
                self.info_of(member)
            return True

        if member.size <= KEPT_BYTES:
            _ = self.data[member.offset : member.offset + member.size]
        return False
