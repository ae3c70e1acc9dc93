"""Compare the length that the header of a wav claims with the length of the file."""

from __future__ import annotations

import struct

NEAR_END = 0.98
"""Share of the samples that must be present; headers of mp3 are wrong by up to one percent."""
STREAMED = 0x7FFF0000
"""Bytes of samples. A header that claims as many or more was written before the length was
known."""


def is_whole(claimed: int, present: int) -> bool:
    """Tell whether a file has the bytes of samples that its header claims.

    True if the header was written before the length was known.
    """
    return present >= NEAR_END * claimed or claimed >= STREAMED


def wav_is_whole(head: bytes, size: int) -> bool:
    """Tell whether a file is not a wav that is cut short.

    The file has `size` bytes and begins with `head`.
    """
    claimed, present = bytes_of_samples(head, size) if head[:4] == b"RIFF" else (0, 0)
    return is_whole(claimed, present)


def bytes_of_samples(head: bytes, size: int) -> tuple[int, int]:
    """Return the bytes of samples that a wav claims, and those that it has.

    Both are 0 without a data chunk in `head`.
    """
    offset = 12  # of the first chunk
    while offset + 8 <= len(head):
        name, length = struct.unpack_from("<4sI", head, offset)
        offset += 8
        if name == b"data":
            return length, size - offset

        offset += length + length % 2  # chunks begin at even bytes

    return 0, 0
