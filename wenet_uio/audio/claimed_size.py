"""Compare the bytes of samples that a header claims with those that the file has.

Formats whose headers say it: wav (RIFF, RIFX, RF64, BW64), Sony Wave64, AIFF, Sun AU, NIST sphere.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from math import prod

NEAR_END = 0.98
"""Share of the samples that must be present; headers of mp3 are wrong by up to one percent."""
STREAMED = 0x7FFF0000
"""Bytes of samples. A 32-bit header that claims as many or more was written before the length was
known."""
DATA_W64 = b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
SPHERE_FACTORS = (b"sample_count", b"sample_n_bytes", b"channel_count")

Claim = tuple[int, int]
"""(bytes of samples that the header claims, bytes that the file has)."""
UNKNOWN: Claim = (0, 0)


def is_whole(claim: Claim) -> bool:
    """Tell whether a file has the bytes of samples that its header claims.

    True if the header was written before the length was known.
    """
    claimed, present = claim
    return present >= NEAR_END * claimed


def claim_of(head: bytes, size: int) -> Claim:
    """Return the bytes of samples that a header claims, and those that the file has.

    `UNKNOWN` for other formats, and for headers that were written before the length was known.

    Args:
        head: first bytes of the file.
        size: bytes of the file.
    """
    start = head[:4]
    if start == b"riff":
        return _of_w64(head, size)
    if start == b".snd" and len(head) >= 12:
        offset, claimed = struct.unpack_from(">2I", head, 4)
        return claim(claimed, size, offset)
    if start == b"NIST":
        return _of_sphere(head, size)
    if start in (b"RIFF", b"RF64", b"BW64"):
        return _of_chunks(head, size, "<")
    if start in (b"RIFX", b"FORM"):
        return _of_chunks(head, size, ">")
    return UNKNOWN


def claim(claimed: int, size: int, offset: int) -> Claim:
    """Return the claim of a header whose samples begin at byte `offset`."""
    return UNKNOWN if STREAMED <= claimed <= 0xFFFFFFFF else (claimed, size - offset)


def _of_chunks(head: bytes, size: int, order: str) -> Claim:
    """Read the chunks of a wav or AIFF, whose numbers have a byte order."""
    large = None  # bytes of samples where 32 bits are too few
    for name, offset, length in _chunks(head, order):
        if name == b"ds64" and offset + 16 <= len(head):
            large = struct.unpack_from("<Q", head, offset + 8)[0]
        if name == b"data" and large is not None and length == 0xFFFFFFFF:
            return large, size - offset
        if name in (b"data", b"SSND"):
            return claim(length, size, offset)

    return UNKNOWN


def _chunks(head: bytes, order: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, byte of the first content, length of the content) of the chunks in `head`."""
    offset = 12
    while offset + 8 <= len(head):
        name, length = struct.unpack_from(f"{order}4sI", head, offset)
        yield name, offset + 8, length
        offset += 8 + length + length % 2  # chunks begin at even bytes


def _of_w64(head: bytes, size: int) -> Claim:
    """Read the chunks of Wave64: 16 bytes of name, 8 bytes of length, which counts both."""
    offset = 16 + 8 + 16  # after the name and length of RIFF, and the name WAVE
    while offset + 24 <= len(head):
        name, length = struct.unpack_from("<16sQ", head, offset)
        if name == DATA_W64:
            return claim(length - 24, size, offset + 24)
        # Chunks begin at multiples of 8 bytes. A damaged length must not stop or turn the loop.
        offset += max(24, -(-length // 8) * 8)

    return UNKNOWN


def _of_sphere(head: bytes, size: int) -> Claim:
    """Read a text header; its second line is its length. Compressed samples claim nothing."""
    lines = head[:1024].split(b"\n")
    fields = {name: re.search(name + rb" -i (\d+)\n", head) for name in SPHERE_FACTORS}
    is_plain = b"embedded" not in head and b"shorten" not in head
    if not (is_plain and all(fields.values()) and lines[1].strip().isdigit()):
        return UNKNOWN
    return claim(prod(int(field[1]) for field in fields.values() if field), size, int(lines[1]))
