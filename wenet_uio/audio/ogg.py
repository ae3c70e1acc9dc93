"""Pages of Ogg: their checksums, and the streams that follow one another in a file.

Source: RFC 3533, section 6.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from wenet_uio.audio.decoders import AudioError

MARK = b"OggS"
HEADER = 27
"""Bytes before the table of segments."""
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


def links_of(data: bytes) -> list[tuple[int, int]]:
    """Return first byte and end of each link of a chained Ogg; one if it is not chained.

    A link begins with the first pages of its streams; streams side by side are one link.

    Raises:
        AudioError: a page is damaged or cut short.
    """
    starts: list[int] = []
    was_first = False
    end = 0
    for page in _pages(data):
        if page.is_first and not was_first:
            starts.append(page.start)
        was_first, end = page.is_first, page.end

    return list(zip(starts, [*starts[1:], end], strict=True))


def _pages(data: bytes) -> Iterator[Page]:
    """Yield the pages of a file, each with a right checksum."""
    offset = 0
    while offset < len(data):
        if not data.startswith(MARK, offset):
            # Players pass over bytes between pages, such as a tag at the end.
            following = data.find(MARK, offset)
            if following < 0:
                return
            offset = following

        table_end = offset + HEADER + (data[offset + 26] if offset + HEADER <= len(data) else 0)
        end = table_end + sum(data[offset + HEADER : table_end])
        if end > len(data) or table_end > len(data) or offset + HEADER > len(data):
            raise AudioError(f"cut short: the page at byte {offset} is not whole")

        page = data[offset:end]
        if checksum(page) != int.from_bytes(page[22:26], "little"):
            raise AudioError(f"damaged: the page at byte {offset} has another checksum")

        yield Page(offset, end, bool(page[5] & FIRST_PAGE))
        offset = end


def checksum(page: bytes) -> int:
    """Return the CRC-32 of a page as Ogg has it, with zeros in place of the stored one.

    Ogg's CRC takes the bits in the other order than zlib's, begins with 0 and is not inverted. So
    the bits are reversed for zlib, and its result is reversed back.
    """
    content = page[:22] + bytes(4) + page[26:]
    reflected = zlib.crc32(content.translate(REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{reflected:032b}"[::-1], 2)
