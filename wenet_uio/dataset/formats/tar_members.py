"""Reading the members of a tar: all that are intact, past damage and through links.

GNU's long names and pax headers are read. A link stands for its target in the same tar. Sparse members, and links to
files outside the tar, are refused by name. Only damaged samples are lost; scanning resumes at the next valid header. A
tar without an end mark is reported too, because it may be cut short.
"""

from __future__ import annotations

import mmap
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK = tarfile.BLOCKSIZE
MAGIC, MAGIC_AT = b"ustar", 257
"""Mark of a header, and its place in it. Tars from before 1988 have no marks and are read up to their first damage."""
GZIP = b"\x1f\x8b"
"""First bytes of a gzip file."""
MAX_SIZE = 2**32 - 1
"""Bytes of a member: the largest number that an index can store."""


class Member(NamedTuple):
    """A file in a tar."""

    name: str
    """As stored, without a leading `./`."""
    offset: int
    """Of the first byte of the file, from the start of the tar."""
    size: int
    """Bytes."""


def read_members(path: str, name: str | None = None) -> tuple[list[Member], list[tuple[str, str]]]:
    """Members of a plain tar in the order of the tar; a link has the offset and size of its target.

    Args:
        name: name of the tar in problems; its path by default.

    Returns:
        the members, and (name, reason) of each member that cannot be used and of each damaged place of the tar.
    """
    name = name or path
    size = Path(path).stat().st_size
    if not size:
        return [], [(name, "an empty file")]
    found: list[Member | tarfile.TarInfo] = []
    bad: list[tuple[str, str]] = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = 0
        while True:
            infos, stopped, error = _walk(file, position)
            found.extend(_usable(infos, size, bad))
            next_header = _next_header(data, stopped)
            damage = _damage(data, stopped, next_header, error)
            if damage:
                bad.append((name, damage))
            if next_header is None:
                break
            position = next_header
        if not found and data[: len(GZIP)] == GZIP:
            return [], [(name, "compressed with gzip; name it .tar.gz, or unpack it")]
    return _without_links(found, bad), bad


def _walk(file: BinaryIO, start: int) -> tuple[list[tarfile.TarInfo], int, str]:
    """Headers from `start` on, the place after the data of the last one, and the error there if tarfile raised one."""
    infos: list[tarfile.TarInfo] = []
    file.seek(start)
    try:
        with tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as tar:
            stopped = tar.offset
            for info in tar:
                infos.append(info)
                stopped = tar.offset
    except (tarfile.TarError, ValueError) as error:
        return infos, stopped if infos else start, str(error)
    return infos, stopped, ""


def _usable(
    infos: list[tarfile.TarInfo], tar_size: int, bad: list[tuple[str, str]]
) -> Iterator[Member | tarfile.TarInfo]:
    """Files as members, and links as they are; (name, reason) of those that cannot be used go to `bad`."""
    for info in infos:
        problem = _problem(info, tar_size)
        if problem:
            bad.append((_printable(info.name), problem))
        elif info.isreg():
            yield Member(_plain(info.name), info.offset_data, info.size)
        elif info.issym() or info.islnk():
            yield info


def _problem(info: tarfile.TarInfo, tar_size: int) -> str:
    """Why a member cannot be read at its offset; empty if it can."""
    if info.issparse():
        return "stored as a sparse file; pack it without --sparse"
    if info.isreg() and info.offset_data + info.size > tar_size:
        return f"cut short: {max(0, tar_size - info.offset_data)} of {info.size} bytes are there"
    if info.isreg() and info.size > MAX_SIZE:
        return f"larger than 4 GiB ({info.size} bytes)"
    if _printable(info.name) != info.name:
        return "its name is not UTF-8"
    return ""


def _next_header(data: mmap.mmap, after: int) -> int | None:
    """Offset of the next valid header; None if there is none."""
    at = data.find(MAGIC, after + MAGIC_AT + 1)
    while at >= 0:
        start = at - MAGIC_AT
        try:
            tarfile.TarInfo.frombuf(data[start : start + BLOCK], "utf-8", "surrogateescape")
            return start
        except tarfile.HeaderError:
            at = data.find(MAGIC, at + 1)
    return None


def _damage(data: mmap.mmap, stopped: int, next_header: int | None, error: str) -> str:
    """Description of the damage where a scan stopped; empty at a proper end of the tar."""
    lost = "" if next_header is None else f"; the next member that can be read is at byte {next_header}"
    block = data[stopped : stopped + BLOCK]
    if stopped > len(data):
        return ""  # the last member is cut short, which is reported for the member itself
    if not block:
        return f"ends at byte {stopped} without an end mark: it may be cut short"
    if not any(block):
        return f"an end mark at byte {stopped}, and members behind it{lost}" if lost else ""
    return f"damaged at byte {stopped} ({error or 'no header of a member'}){lost}"


def _without_links(found: list[Member | tarfile.TarInfo], bad: list[tuple[str, str]]) -> list[Member]:
    """The members, with each link as a member that has the place of its target; links without a target go to `bad`."""
    by_name = {item.name if isinstance(item, Member) else _plain(item.name): item for item in found}
    members = []
    for item in found:
        if isinstance(item, Member):
            members.append(item)
            continue
        *_, end = _followed(item, by_name)
        if isinstance(end, Member):
            members.append(end._replace(name=_plain(item.name)))
        else:
            bad.append((_plain(item.name), f"a link to {_printable(item.linkname)}, which is not in the tar"))
    return members


def _followed(link: tarfile.TarInfo, by_name: dict) -> Iterator[Member | tarfile.TarInfo | None]:
    """The items that a chain of links leads to, one by one; a circle of links ends after as many steps as names."""
    item: Member | tarfile.TarInfo | None = link
    for _ in range(len(by_name)):
        folder = posixpath.dirname(item.name) if item.issym() else ""
        item = by_name.get(_plain(posixpath.normpath(posixpath.join(folder, item.linkname))))
        yield item
        if not isinstance(item, tarfile.TarInfo):
            return


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _printable(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()
