"""Scan a remote tar by byte ranges: its headers, its texts, and what tells the length of its audio.

The scan is that of a local tar, over an object that fetches what is asked for, so both give the
same index. Walkers come before it. They visit the members in the order of the tar, in several parts
of a large tar at a time, and the object keeps what they read. A walker that errs, as in a damaged
tar, costs requests: its scan then asks the store for what is missing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.partial_file import PartialFile
from wenet_uio.audio.read import audio_info
from wenet_uio.dataset.corpus.index import Indexed
from wenet_uio.dataset.corpus.shard_scan import scan
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import Layout, is_audio, split_name
from wenet_uio.dataset.formats.tar_headers import BLOCK, FILES, Header, HeaderError, HeaderReader
from wenet_uio.dataset.formats.tar_members import MAX_SIZE, Member, plain_name
from wenet_uio.dataset.storage.ranged_object import KEPT_BYTES, NEAR, RangedObject
from wenet_uio.dataset.storage.versions import Version

FIRST_SAMPLES = 32
"""Members with audio by which the size of the others is judged."""
SAMPLES_OF_WALKER = 32
"""A walker begins with a search for a header, through half a sample on average. It is worth that
for so many samples."""
SEARCHED_SAMPLES = 4
"""Samples of average size that are searched for a header."""


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
