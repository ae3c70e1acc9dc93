"""Walking a tar: every member that can be had, around damage and through links."""

from __future__ import annotations

import mmap
import os
import posixpath
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

BLOCK = tarfile.BLOCKSIZE
MAGIC, MAGIC_AT = b"ustar", 257
"""Of a header, and where in it; the tars of before 1988 lack it, and end at their first damage."""
GZIP = b"\x1f\x8b"
MAX_SIZE = 2**32 - 1
"""Bytes of a member: what an index can say."""


class Member(NamedTuple):
    """A file in a tar."""

    name: str
    """As stored, without a leading `./`."""
    offset: int
    """Of its bytes, from the start of the tar."""
    size: int


def read_members(path: str, name: str | None = None) -> tuple[list[Member], list[tuple[str, str]]]:
    """Members of a plain tar in its order; links stand for the member that they point to.

    GNU's long names and pax headers are read. After damage the walk goes on at the next header that is sound.

    Returns:
        the members, and (name, reason) of each that cannot be used and of each damaged place (under the `name` of the
        tar, its path by default).
    """
    name = name or path
    size = os.path.getsize(path)
    if not size:
        return [], [(name, "an empty file")]
    found: list[Member | tarfile.TarInfo] = []
    bad: list[tuple[str, str]] = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = 0
        while True:
            infos, stopped, error = _walk(file, position)
            for info in infos:
                problem = _problem(info, size)
                if problem:
                    bad.append((_printable(info.name), problem))
                elif info.isreg():
                    found.append(Member(_plain(info.name), info.offset_data, info.size))
                elif info.issym() or info.islnk():
                    found.append(info)
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
    """Headers from `start` on, the place after the last one's data, and what was wrong there, if tarfile says so."""
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


def _problem(info: tarfile.TarInfo, tar_size: int) -> str:
    """Why a member cannot be read at its offset; empty when it can."""
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
    """Where the next sound header begins; None when there is none."""
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
    """What is wrong where a walk stopped; empty at a proper end."""
    lost = "" if next_header is None else f"; the next member that can be read is at byte {next_header}"
    block = data[stopped : stopped + BLOCK]
    if stopped > len(data):
        return ""  # the member that ends behind the tar is named on its own
    if not block:
        return f"ends at byte {stopped} without an end mark: it may be cut short"
    if not any(block):
        return f"an end mark at byte {stopped}, and members behind it{lost}" if lost else ""
    return f"damaged at byte {stopped} ({error or 'no header of a member'}){lost}"


def _without_links(found: list[Member | tarfile.TarInfo], bad: list[tuple[str, str]]) -> list[Member]:
    """Each link as a member of its own name with the bytes of its target; those without a target go to `bad`."""
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
    """What a link leads to, link by link; a circle ends after as many steps as there are names."""
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
