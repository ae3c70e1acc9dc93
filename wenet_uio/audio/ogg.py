"""Pages of Ogg: their checksums, and the streams that follow one another in a file.

Source: RFC 3533, section 6.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from wenet_uio.audio.decoders import AudioError

MARK = b"OggS"
HEADER = 27
"""Bytes before the table of segments."""
VORBIS = b"\x01vorbis"
"""Beginning of the first packet of Vorbis."""
FIRST_PAGE = 2
"""Flag of the first page of a stream."""
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""{byte: its bits in reverse order}."""


class Page(NamedTuple):
    """Where a page is."""

    start: int
    end: int
    is_first: bool
    """It begins a stream."""
    position: int
    """Samples up to its end, as its codec counts them; below 0 if no packet ends on it."""
    stream: int
    """Serial number of its stream."""
    number: int
    """Counts the pages of its stream."""


class Link(NamedTuple):
    """A stream, or streams side by side, of a chained Ogg."""

    start: int
    end: int
    last_page: int | None
    """First sample of the last page of Vorbis; None for other codecs."""


def links_of(data: bytes) -> list[Link]:
    """Return the links of a chained Ogg; one if it is not chained.

    A link begins with the first pages of its streams; streams side by side are one link.

    Raises:
        AudioError: a page is damaged or cut short.
    """
    pages_of_links: list[list[Page]] = []
    was_first = False  # whether the page before began a stream
    next_numbers: dict[int, int] = {}  # {stream: number of its next page}
    for page in _walk_pages(data):
        expected = next_numbers.get(page.stream, page.number)
        if not page.is_first and page.number != expected:
            raise AudioError(f"damaged: a page before byte {page.start} is missing")
        next_numbers[page.stream] = page.number + 1

        if page.is_first and not was_first:
            pages_of_links.append([])
        if pages_of_links:  # pages before the first stream belong to no link
            pages_of_links[-1].append(page)
        was_first = page.is_first

    return [_link_from_pages(data, pages) for pages in pages_of_links]


def _link_from_pages(data: bytes, pages: list[Page]) -> Link:
    """Return a link (a stream of a chained Ogg) from its pages, the first of which names the codec."""
    start, end = pages[0].start, pages[-1].end
    is_vorbis = VORBIS in data[start : pages[0].end]
    # The last page begins where the page before it ends.
    earlier_positions = [page.position for page in pages[:-1] if page.position >= 0]
    last_page = earlier_positions[-1] if is_vorbis and earlier_positions else None
    return Link(start, end, last_page)


def _walk_pages(data: bytes) -> Iterator[Page]:
    """Yield the pages of a file, each with a right checksum."""
    offset = 0
    while offset < len(data):
        if not data.startswith(MARK, offset):
            # Players pass over bytes between pages, such as a tag at the end.
            following = data.find(MARK, offset)
            if following < 0:
                return
            offset = following

        # The last byte of the header is the number of segments. A table has the bytes of each.
        header_end = offset + HEADER
        num_segments = data[header_end - 1] if header_end <= len(data) else 0
        table_end = header_end + num_segments
        segment_sizes = data[header_end:table_end]
        end = table_end + sum(segment_sizes)
        if end > len(data):
            raise AudioError(f"cut short: the page at byte {offset} is not whole")

        page = data[offset:end]
        if checksum(page) != int.from_bytes(page[22:26], "little"):
            raise AudioError(f"damaged: the page at byte {offset} has another checksum")

        position, stream, number = struct.unpack_from("<qII", page, 6)
        yield Page(offset, end, bool(page[5] & FIRST_PAGE), position, stream, number)
        offset = end


def checksum(page: bytes) -> int:
    """Return the CRC-32 of a page as Ogg has it, with zeros in place of the stored one.

    Ogg's CRC takes the bits in the other order than zlib's, begins with 0 and is not inverted. So
    the bits are reversed for zlib, and its result is reversed back.
    """
    content = page[:22] + bytes(4) + page[26:]
    reflected = zlib.crc32(content.translate(REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{reflected:032b}"[::-1], 2)
