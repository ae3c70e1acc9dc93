"""Damage for the bytes of a file, drawn from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping

SEED = 59
HEADER = 256
"""Bytes at either end of a file where most of the damage is."""
NUMBERS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\x7f\xff\xff\xff", b"\x01\0", b"\0")
"""Values that parsers of lengths and counts may not expect."""


def damaged(
    originals: Mapping[str, bytes], times: int, seed: int = SEED
) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each original, damaged in `times` ways."""
    drawn = random.Random(seed)
    for name, data in originals.items():
        for number in range(times):
            yield f"{name}, seed {seed}, case {number}", mutate(data, drawn)


def mutate(data: bytes, drawn: random.Random) -> bytes:
    """Overwrite numbers and digits, mostly near an end; take bytes away, double some, or cut."""
    changed = bytearray(data)
    for _ in range(drawn.choice((1, 1, 2, 4))):
        if not changed:
            break

        size = len(changed)
        places = (drawn.randrange(HEADER), -drawn.randrange(HEADER), drawn.randrange(size))
        start = drawn.choice(places) % size
        length = drawn.randrange(1, 40)
        kind = drawn.random()
        if kind < 0.7:
            number = drawn.choice((*NUMBERS, *_random_numbers(drawn)))
            changed[start : start + len(number)] = number
        elif kind < 0.8:
            changed[start] ^= 1 << drawn.randrange(8)
        elif kind < 0.88:
            del changed[start : start + length]
        elif kind < 0.96:
            changed[start:start] = changed[start : start + length]
        else:
            del changed[start:]
    return bytes(changed)


def _random_numbers(drawn: random.Random) -> tuple[bytes, ...]:
    """Return numbers of several widths, the last of them as digits."""
    return (
        struct.pack("<I", drawn.getrandbits(32)),
        struct.pack(">I", drawn.getrandbits(drawn.randrange(1, 33))),
        struct.pack("<Q", drawn.getrandbits(64)),
        bytes([drawn.getrandbits(8)]),
        b"%d" % drawn.getrandbits(drawn.randrange(1, 80)),
    )
