"""Reading the members of a tar: all that are intact, past damage and through links.

A link stands for its target in the same tar. Sparse members, devices, and links to files outside
the tar are refused by name. Only damaged samples are lost; scanning resumes at the next valid
header. A tar without an end mark, or with more zeros behind it than a record, is reported too,
because it may be cut short or downloaded in part.
"""

from __future__ import annotations

import mmap
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from wenet_uio.dataset.formats.tar_headers import (
    BLOCK,
    FILES,
    LINKS,
    SPARSE,
    WITHOUT_SAMPLES,
    Header,
    HeaderError,
    HeaderReader,
    TarBytes,
)
from wenet_uio.dataset.storage.archives import MARK_BYTES, kind_of_archive

MAX_SIZE = 2**32 - 1
"""Bytes of a member: the largest number that an index can store."""
RECORD_BYTES = 20 * BLOCK
"""Most programs pad a tar with zeros to a multiple of this."""
OTHER_RECORDS = [BLOCK << power for power in range(12)]
"""Bytes of other records (`tar -b`): powers of two up to 1 MiB."""
END_BYTES = 2 * BLOCK
"""Zeros that end a tar."""
MOST_LINKS = 40
"""Links that are followed from one to the next, as in Linux."""
PIECE = 1 << 20
"""Bytes of a tar that are compared with zeros at a time."""


class Member(NamedTuple):
    """A file in a tar."""

    name: str
    """As stored, without a leading `./`."""
    offset: int
    """Of the first byte of the file, from the start of the tar."""
    size: int
    """Bytes."""
    target: str = ""
    """Of a link: name of the member that has the data."""


def read_members(path: str, name: str | None = None) -> tuple[list[Member], list[tuple[str, str]]]:
    """Return members of a plain tar in the order of the tar; a link has the offset and size of its
    target.

    Args:
        name: name of the tar in problems; its path by default.

    Returns:
        the members, and (name, reason) of each member that cannot be used and of each damaged place
        of the tar.
    """
    with mapped(path) as data:
        return members_of(data, name or path)


@contextmanager
def mapped(path: str) -> Iterator[TarBytes]:
    """Map a file; an empty file cannot be mapped, and is no bytes."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def members_of(data: TarBytes, name: str) -> tuple[list[Member], list[tuple[str, str]]]:
    """As `read_members`, of a tar that is open."""
    if not len(data):
        return [], [(name, "an empty file")]

    members: list[Member | Header] = []
    bad: list[tuple[str, str]] = []
    _scan(data, name, members, bad)
    if not members and (kind := kind_of_archive(bytes(data[:MARK_BYTES]))):
        return [], [(name, kind)]

    return _without_links(members, bad), bad


def _scan(
    data: TarBytes, name: str, members: list[Member | Header], bad: list[tuple[str, str]]
) -> None:
    """Add files and links to `members`; members that cannot be used, and damaged places of the tar,
    to `bad`.
    """
    reader = HeaderReader(data)
    while True:
        error = ""
        try:
            header = reader.next()
        except HeaderError as raised:
            header, error = None, str(raised)

        if header is not None:
            _take(header, members, bad)
            continue

        # Damage, or an end mark. Members may follow both: tars can be joined.
        stopped = reader.position
        next_header = reader.resume()
        damage = _damage(data, stopped, error, next_header)
        if damage:
            bad.append((name, damage))
        if next_header is None:
            return


def _take(header: Header, members: list[Member | Header], bad: list[tuple[str, str]]) -> None:
    """Add one member to `members` or to `bad`; folders belong to neither."""
    problem = _problem(header)
    if problem:
        bad.append((_printable(plain_name(header.name)), problem))
    elif header.kind in FILES:
        members.append(Member(plain_name(header.name), header.offset, header.size))
    elif header.kind in LINKS:
        members.append(header)


def _problem(header: Header) -> str:
    """Say why a member cannot be used; empty if it can."""
    if header.problem:
        return header.problem
    if header.kind == SPARSE:
        return "stored as a sparse file; pack it without --sparse"
    if header.kind in WITHOUT_SAMPLES:
        return ""
    if header.kind not in FILES + LINKS:
        return f"neither a file nor a link, but a member of type {_printable(header.kind.decode('latin-1'))}"
    if header.size > MAX_SIZE:
        return f"larger than 4 GiB ({header.size} bytes)"
    if _printable(header.name) != header.name:
        return "its name is not UTF-8"

    if not plain_name(header.name) or "\0" in header.name:
        return "its name is empty or holds a zero byte"
    return ""


def _damage(data: TarBytes, stopped: int, error: str, next_header: int | None) -> str:
    """Return the description of the damage where a scan stopped; empty at a proper end of the tar."""
    lost = ""
    if next_header is not None:
        lost = f"; the next member that can be read is at byte {next_header}"
    if error:
        return f"damaged at byte {stopped} ({error}){lost}"
    if lost:
        return f"an end mark at byte {stopped}, and members behind it{lost}"
    if stopped >= len(data) + BLOCK:
        return f"ends at byte {len(data)}, in its last member: it may be cut short"
    if stopped > len(data):
        return f"ends at byte {len(data)}, in the padding of its last member: it may be cut short"
    if stopped == len(data):
        return f"ends at byte {stopped} without an end mark: it may be cut short"

    return _damage_behind(data, stopped)


def _damage_behind(data: TarBytes, end: int) -> str:
    """Return the description of what follows the last member of a tar, if that is more than an end
    mark and its padding.

    A tar that was half downloaded into a file of its full size ends with zeros too, but with more
    of them.
    """
    for start in range(end, len(data), PIECE):
        piece = data[start : start + PIECE].lstrip(b"\0")
        if piece:
            damage = min(start + PIECE, len(data)) - len(piece)
            return (
                f"damaged at byte {damage} (no header of a member, behind an end mark at byte "
                f"{end})"
            )

    zeros, records = len(data) - end, [RECORD_BYTES]
    if len(data) % RECORD_BYTES:
        records = OTHER_RECORDS

    if zeros <= END_BYTES or any(
        len(data) % record == 0 and zeros < record + END_BYTES for record in records
    ):
        return ""

    return f"{zeros} bytes of zeros at its end, from byte {end}: it may have been downloaded or written in part"


def _without_links(headers: list[Member | Header], bad: list[tuple[str, str]]) -> list[Member]:
    """Return the members, with each link as a member that has the place of its target; links
    without a target go to `bad`.

    A file that was named twice for `tar` is a file and a link to itself, which is left out.
    """
    by_name = {plain_name(item.name): item for item in headers}
    by_name |= {item.name: item for item in headers if isinstance(item, Member)}
    members = []
    for item in headers:
        if isinstance(item, Member):
            members.append(item)
            continue

        target = _target(item, by_name)
        if isinstance(target, str):
            bad.append((plain_name(item.name), f"a link to {_printable(item.link)}, {target}"))
        elif target.name != plain_name(item.name):
            members.append(target._replace(name=plain_name(item.name), target=target.name))

    return members


def _target(link: Header, by_name: dict[str, Member | Header]) -> Member | str:
    """Return the member that a chain of links leads to, or why it leads to none."""
    item = link
    for _ in range(MOST_LINKS):
        folder = posixpath.dirname(item.name) if item.kind == LINKS[1:] else ""
        target = by_name.get(plain_name(posixpath.normpath(posixpath.join(folder, item.link))))
        if isinstance(target, Member):
            return target
        if target is None:
            leads_to = "" if item is link else f"leads to {_printable(item.link)}, which "
            return f"which {leads_to}is not in the tar"
        if target is link:
            return "which leads back to this link"

        item = target

    return f"behind which more than {MOST_LINKS} links follow each other, or lead in a circle"


def plain_name(name: str) -> str:
    """Return the name of a member without a leading `./`."""
    return name.removeprefix("./")


def _printable(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()
