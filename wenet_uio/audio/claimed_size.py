"""Compare the bytes of samples that a header claims with those that the file has.

Formats whose headers say it: wav (RIFF, RIFX, RF64, BW64), Sony Wave64, AIFF, Sun AU, NIST sphere.
"""

from __future__ import annotations

import re
import struct

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
        return _w64_claim(head, size)
    if start == b".snd" and len(head) >= 12:
        offset, claimed = struct.unpack_from(">2I", head, 4)
        return claim(claimed, size, offset)
    if start == b"NIST":
        return _sphere_claim(head, size)
    if start in (b"RIFF", b"RF64", b"BW64"):
        return _riff_claim(head, size, "<")
    if start in (b"RIFX", b"FORM"):
        return _riff_claim(head, size, ">")
    return UNKNOWN


def claim(claimed: int, size: int, offset: int) -> Claim:
    """Return the claim of a header whose samples begin at byte `offset` of `size`.

    `UNKNOWN` if it was written before the length was known.
    """
    return UNKNOWN if STREAMED <= claimed <= 0xFFFFFFFF else (claimed, size - offset)


def _riff_claim(head: bytes, size: int, order: str) -> Claim:
    """Return the claim of a wav or AIFF; `UNKNOWN` if its samples begin after `head`.

    Args:
        order: byte order of its numbers, as `struct` names it.
    """
    large_claim = None  # bytes of samples where 32 bits are too few
    chunk = 12  # after the name and length of RIFF, and the name WAVE
    while chunk + 8 <= len(head):
        name, length = struct.unpack_from(f"{order}4sI", head, chunk)
        content = chunk + 8
        if name == b"ds64" and content + 16 <= len(head):
            large_claim = struct.unpack_from("<Q", head, content + 8)[0]
        if name == b"data" and large_claim is not None and length == 0xFFFFFFFF:
            return large_claim, size - content
        if name in (b"data", b"SSND"):
            return claim(length, size, content)
        chunk = content + length + length % 2  # chunks begin at even bytes

    return UNKNOWN


def _w64_claim(head: bytes, size: int) -> Claim:
    """Return the claim of a Wave64; `UNKNOWN` if its samples begin after `head`.

    A chunk has a name of 16 bytes, and a length of 8 bytes, which counts name and length too.
    """
    offset = 16 + 8 + 16  # after the name and length of RIFF, and the name WAVE
    while offset + 24 <= len(head):
        name, length = struct.unpack_from("<16sQ", head, offset)
        if name == DATA_W64:
            return claim(length - 24, size, offset + 24)
        # Chunks begin at multiples of 8 bytes. A damaged length must not stop or turn the loop.
        offset += max(24, -(-length // 8) * 8)

    return UNKNOWN


def _sphere_claim(head: bytes, size: int) -> Claim:
    """Return the claim of a NIST sphere; `UNKNOWN` if its samples are compressed.

    Its header is text. The second line is the length of the header in bytes.
    """
    if b"embedded" in head or b"shorten" in head:
        return UNKNOWN

    claimed = 1
    for name in SPHERE_FACTORS:
        field = re.search(name + rb" -i (\d+)\n", head)
        if field is None:
            return UNKNOWN
        claimed *= int(field[1])

    header_bytes = head[:1024].split(b"\n")[1].strip()
    return claim(claimed, size, int(header_bytes)) if header_bytes.isdigit() else UNKNOWN
