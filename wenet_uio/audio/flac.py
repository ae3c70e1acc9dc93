"""FLAC: whether a file ends where its header says, and the streams of joined files.

Source: RFC 9639.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

MARK = b"fLaC"
STREAM_INFO = 34
"""Bytes."""
START = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22", re.DOTALL)
"""First bytes of a stream: the mark, and the header of its STREAMINFO block."""
TAIL = 1 << 15
"""Bytes at the end of a file in which its last frame is looked for, if the header does not state
the size of its largest frame."""


FRAME_SYNC = b"\xff\xf8"
"""First bytes of a frame of a stream whose frames have one block size."""
MOST_METADATA = 1 << 14
"""Bytes before the first frame that are no evidence of a second stream."""


def _byte_remainder(byte: int) -> int:
    """Return the CRC-8 of one byte, with the polynomial x^8 + x^2 + x + 1 (0x107)."""
    for _ in range(8):
        byte = byte << 1 ^ 0x107 * (byte >> 7)
    return byte


CRC8 = bytes(map(_byte_remainder, range(256)))
"""{byte: its remainder} of the checksum of frame headers."""


class StreamInfo(NamedTuple):
    """What the header of a stream states; 0 where it is not known."""

    block_size: int
    """Samples of each frame but the last."""
    largest_frame: int
    """Bytes; 0: not stated."""
    num_samples: int
    sample_rate: int
    """Hz."""
    channels: int


def stream_info(head: bytes) -> StreamInfo | None:
    """Return the STREAMINFO block of a FLAC that begins with `head`; None if there is none, or if the
    frames have different numbers of samples, or none.
    """
    block = head[8 : 8 + STREAM_INFO]
    if not START.match(head) or len(block) < STREAM_INFO:
        return None

    smallest_block = int.from_bytes(block[:2], "big")
    largest_block = int.from_bytes(block[2:4], "big")
    if smallest_block != largest_block or not largest_block:
        return None

    # 20 bits of sample rate, 3 of channels less one, 5 of bits a sample less one, 36 of samples
    packed = int.from_bytes(block[10:18], "big")
    return StreamInfo(
        block_size=largest_block,
        largest_frame=int.from_bytes(block[7:10], "big"),
        num_samples=packed & ((1 << 36) - 1),
        sample_rate=packed >> 44,
        channels=(packed >> 41 & 7) + 1,
    )


def ends_as_stated(info: StreamInfo, size: int, tail: bytes) -> bool:
    """Tell whether a file of `size` bytes is one stream that ends where its header says.

    The last frame must be the last one that the header states, and there must not be more bytes
    than such frames can have. Two joined streams of one length, to the sample, may pass if their
    frames are small; whoever reads all of the file sees them.

    Args:
        tail: last bytes of the file, with its last frame.
    """
    num_frames = -(-info.num_samples // info.block_size)  # rounded up
    if info.largest_frame and size > MOST_METADATA + num_frames * info.largest_frame:
        return False

    # Samples may look like the mark of a frame: the last mark with a valid header counts.
    offset = tail.rfind(FRAME_SYNC)
    while offset >= 0:
        number = _frame_number(tail, offset)
        if number is not None:
            return number == num_frames - 1
        offset = tail.rfind(FRAME_SYNC, 0, offset)
    return False


def _frame_number(tail: bytes, offset: int) -> int | None:
    """Return the number of the frame whose header is at `offset`; None if no header is there."""
    header = tail[offset : offset + 16]
    if len(header) < 16:
        return None

    # Byte 2 has codes of the block size and of the rate; one value of each is reserved. The last bit
    # of byte 3 is 0.
    size_code = header[2] >> 4
    rate_code = header[2] & 15
    if size_code == 0 or rate_code == 15 or header[3] & 1:
        return None

    coded = _coded_number(header[4:])
    if coded is None:
        return None

    # Some codes say that block size or rate follows the number, in one byte or two.
    number, number_bytes = coded
    size_bytes = {6: 1, 7: 2}.get(size_code, 0)
    rate_bytes = {12: 1, 13: 2, 14: 2}.get(rate_code, 0)

    # A checksum ends the header.
    end = 4 + number_bytes + size_bytes + rate_bytes
    crc = 0
    for byte in header[:end]:
        crc = CRC8[crc ^ byte]
    return number if crc == header[end] else None


def _coded_number(data: bytes) -> tuple[int, int] | None:
    """Return a number that is coded like a character of UTF-8, and how many bytes it has; None if
    the bytes are no such number.
    """
    first = data[0]
    if first < 0x80:
        return first, 1

    # As many bits at the start of the first byte are set as the number has bytes.
    length = 0
    while length < 8 and first & (0x80 >> length):
        length += 1
    if not 2 <= length <= 7:
        return None

    # The first byte has the highest bits of the number, each further byte has 6 bits after `10`.
    number = first & ((1 << (7 - length)) - 1)
    for byte in data[1:length]:
        if byte >> 6 != 0b10:
            return None
        number = number << 6 | byte & 0x3F

    return number, length


def streams_of(data: bytes) -> list[tuple[int, int]]:
    """Return first byte and end of each stream of a file: several if files were joined, none if its
    header is damaged.
    """
    starts = [match.start() for match in START.finditer(data)]
    return list(pairwise([*starts, len(data)]))
