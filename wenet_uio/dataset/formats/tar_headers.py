"""Reading the headers of a tar one by one, with a bound on every number that a header states.

A tar from a stranger may state any size, and may have any number of extended headers. Python's
tarfile follows both without a bound. Here every header takes one step forward, so that time and
memory grow with the size of the tar.

ustar, GNU and pax headers are read, and headers from before 1988.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

BLOCK = 512
"""Bytes. Every header starts at a multiple of this, and the data of a member is padded to a
multiple."""
MAGIC, MAGIC_AT = b"ustar", 257
"""Mark of a header, and its place in it. Tars from before 1988 have no marks and are read up to
their first damage."""
KIND_AT = 156
"""Place of the type of the member in a header, one byte."""
MOST_EXTENDED = 1 << 20
"""Bytes of a long name or of pax records that are read; a member with more is refused."""
LOOK_BACK = 4 * BLOCK
"""Bytes before the data of a member that hold its headers, if its name takes up to about 1000
bytes."""

FILES, LINKS = b"07\0", b"12"
"""Types of members (one byte each): files; hard and symbolic links."""
LONG_NAME, LONG_LINK, PAX, PAX_GLOBAL, SPARSE = b"L", b"K", b"xX", b"g", b"S"
EXTENDED = LONG_NAME + LONG_LINK + PAX + PAX_GLOBAL
"""Types of headers that describe the member behind them."""
WITHOUT_SAMPLES = b"5DV"
"""Types that are skipped: folders, GNU's lists of files and volume labels."""
WITHOUT_DATA = LINKS + b"3456"
"""Types with a header alone, whatever size the header states."""
RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")
"""Start of a pax record: its length in bytes, and its key."""
PAX_KEYS = ("path", "linkpath", "size", "GNU.sparse.name")
"""Keys of pax records that are used."""
OCTAL = re.compile(rb"[ \0]*[0-7]")
"""Start of a checksum."""


class TarBytes(Protocol):
    """The bytes of a tar: a mapped file, or an object in a store."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes: ...

    def find(self, mark: bytes, start: int, end: int, /) -> int:
        """Return the first place of `mark` in bytes `start` up to `end`; -1 if there is none."""
        ...


class HeaderError(ValueError):
    """A block is not the header of a member; the message says why."""


class Header(NamedTuple):
    """One header as stored, or with the values of the extended headers before it."""

    kind: bytes
    """Type of the member, one byte."""
    name: str
    """Bytes that are not UTF-8 are surrogates."""
    size: int
    """Bytes of data; -1 if the header states no valid number."""
    link: str
    """Target of a link."""
    offset: int = 0
    """Of the data, from the start of the tar."""
    problem: str = ""
    """Why the member cannot be used; empty if it can."""


class HeaderReader:
    """Reads the headers of a tar in order.

    `position` is the place of the next header. It is beyond the end of the tar after a member that
    is cut short, if no header follows it.
    """

    def __init__(self, data: TarBytes, position: int = 0) -> None:
        self.position = position
        self._data = data
        self._common: dict[str, bytes] = {}
        self._problem = ""

    def next(self) -> Header | None:
        """Return the next member, or None if there is a block of zeros, or the end of the tar, in
        place of a header.

        Raises:
            HeaderError: the block at `position` is no header.
        """
        of_member: dict[str, bytes] = {}
        while True:
            block = self._data[self.position : self.position + BLOCK]
            if not any(block):
                if of_member or self._problem:
                    self._problem = ""
                    raise HeaderError("no member behind an extended header")
                return None

            header = parse_header(block)
            self.position += BLOCK
            if header.kind not in EXTENDED:
                break

            self._read_extended(header, of_member)

        if header.kind == SPARSE:
            self._skip_sparse_map(block)

        return self._placed(_described(header, self._common | of_member))

    def resume(self, limit: int | None = None) -> int | None:
        """Move to the next header behind `position`; returns its place, or None if there is none
        before byte `limit` (None: the end of the tar).
        """
        position = self._next_header(self.position + 1, limit)
        if position is not None:
            self.position = position
        return position

    def _read_extended(self, header: Header, of_member: dict[str, bytes]) -> None:
        """Add the values of an extended header to `of_member`, which are those of the next member,
        or to the values of all later members.
        """
        end = self.position + header.size
        if header.size < 0 or end > len(self._data):
            self.position -= BLOCK
            self._problem = f"the extended header before it states a size of {header.size} bytes"
            raise HeaderError(f"an extended header that states a size of {header.size} bytes")

        content = self._data[self.position : min(end, self.position + MOST_EXTENDED)]
        self.position += padded(header.size)
        if header.size > MOST_EXTENDED:
            self._problem = (
                f"its extended header has {header.size} bytes, more than {MOST_EXTENDED}"
            )
        elif header.kind in LONG_NAME + LONG_LINK:
            field = "path" if header.kind in LONG_NAME else "linkpath"
            of_member[field], _, _ = content.partition(b"\0")
        else:
            values = self._common if header.kind in PAX_GLOBAL else of_member
            try:
                values.update(_pax_values(content))
            except HeaderError as error:
                self._problem = str(error)

    def _placed(self, header: Header) -> Header:
        """Return the header with the offset of its data; moves on to the header behind the data."""
        start = self.position
        problem, self._problem = self._problem, ""
        size = 0 if header.kind in WITHOUT_DATA else header.size
        present = len(self._data) - self.position
        if 0 <= size <= present:
            self.position += padded(size)
            return header._replace(offset=start, problem=problem)

        problem = "its header states no valid size"
        if size > 0:
            problem = f"cut short: {present} of {size} bytes are there"

        next_header = self._next_header(self.position)
        self.position = len(self._data) + BLOCK
        if next_header is not None:
            self.position = next_header
            problem += f"; the next member that can be read is at byte {next_header}"

        return header._replace(offset=start, problem=problem)

    def _skip_sparse_map(self, header: bytes) -> None:
        """Skip the blocks with the rest of the map of a sparse member, in GNU's old format."""
        has_more = header[482]  # isextended
        while has_more and self.position + BLOCK <= len(self._data):
            # isextended of a block of the map
            has_more = any(self._data[self.position + 504 : self.position + 505])
            self.position += BLOCK

    def _next_header(self, start: int, limit: int | None = None) -> int | None:
        """Return the place of the first header with a mark at or behind `start`; None if there is
        none before `limit`.
        """
        end = len(self._data) if limit is None else limit
        at = self._data.find(MAGIC, start + MAGIC_AT, end)
        while at >= 0:
            block = self._data[at - MAGIC_AT : at - MAGIC_AT + BLOCK]
            if OCTAL.match(block, 148, 156):
                try:
                    parse_header(block)
                    return at - MAGIC_AT
                except HeaderError:
                    pass

            at = self._data.find(MAGIC, at + 1, end)

        return None


def parse_header(block: bytes) -> Header:
    """Return the values of one block, without those of extended headers.

    Raises:
        HeaderError: the block is too short, or its checksum is wrong.
    """
    if len(block) < BLOCK:
        raise HeaderError("no header of a member")

    stated = _number(block[148:156])
    unsigned = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    # Old programs summed signed bytes.
    if stated != unsigned and stated != unsigned - 256 * sum(
        byte > 127 for byte in block[:148] + block[156:]
    ):
        raise HeaderError("no header of a member")

    return _values(block)


def _values(block: bytes) -> Header:
    """Return the values of a block that is taken to be a header; see `struct posix_header` of tar."""
    name = block[:100].partition(b"\0")[0]
    if block[MAGIC_AT : MAGIC_AT + 6] == b"ustar\0" and block[345]:
        name = block[345:500].partition(b"\0")[0] + b"/" + name

    kind = block[KIND_AT : KIND_AT + 1]
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"  # before 1988, folders had no type of their own

    return Header(
        kind, _text(name), _number(block[124:136]), _text(block[157:257].partition(b"\0")[0])
    )


def member_before(before: bytes | memoryview) -> tuple[str, int]:
    """Return the name and the size that the headers just before the data of a member state.

    The checksum of the member's own header is not compared: the caller compares name and size.

    Args:
        before: the LOOK_BACK bytes before the data; fewer at the start of a tar.

    Returns:
        "" and -1 if there is no room for a header.
    """
    before = bytes(before)
    if len(before) < BLOCK:
        return "", -1

    header_at = len(before) - BLOCK
    header = _described(_values(before[header_at:]), _extended_values(before[:header_at]))
    return header.name, header.size


def _extended_values(before: bytes) -> dict[str, bytes]:
    """Return the values of the extended header that ends where `before` ends; empty if none does.

    An extended header is a block, and at least one block of content, so that it begins two blocks
    or more before the end.
    """
    for start in range(len(before) - 2 * BLOCK, -1, -BLOCK):
        content_at = start + BLOCK
        block = before[start:content_at]
        is_marked = block[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC
        if not is_marked or block[KIND_AT] not in LONG_NAME + PAX:
            continue

        try:
            extended = parse_header(block)
            if content_at + padded(extended.size) != len(before):
                continue

            content = before[content_at : content_at + extended.size]
            is_name = extended.kind in LONG_NAME
            return {"path": content.partition(b"\0")[0]} if is_name else _pax_values(content)
        except HeaderError:
            continue

    return {}


def padded(size: int) -> int:
    """Return bytes that data of this size takes in a tar."""
    return -(-size // BLOCK) * BLOCK


def _described(header: Header, values: dict[str, bytes]) -> Header:
    """Return the header of a member with the values of the extended headers before it."""
    if not values:
        return header
    if "path" in values:
        header = header._replace(name=_text(values["path"]))
    if "linkpath" in values:
        header = header._replace(link=_text(values["linkpath"]))
    if "size" in values:
        header = header._replace(size=_number(values["size"], 10))
    if "GNU.sparse.name" in values:
        header = header._replace(name=_text(values["GNU.sparse.name"]))

    return header._replace(kind=SPARSE) if "sparse" in values else header


def _pax_values(content: bytes) -> dict[str, bytes]:
    """Return values of PAX_KEYS in a pax header, and `sparse`. A record is `LENGTH KEY=VALUE` and a
    newline.

    Raises:
        HeaderError: a record is not of this form.
    """
    values, at = {}, 0
    while at < len(content) and content[at]:
        start = RECORD.match(content, at)
        end = at + int(start[1]) if start else 0
        if start is None or end <= start.end() or content[end - 1 : end] != b"\n":
            raise HeaderError(f"its pax header is damaged at byte {at}")

        key = _text(start[2])
        if key in PAX_KEYS:
            values[key] = content[start.end() : end - 1]
        if key.startswith("GNU.sparse."):
            values["sparse"] = b""

        at = end

    return values


def _number(field: bytes, base: int = 8) -> int:
    """Return the number of a field, in digits or as GNU's binary number; -1 if the field has no
    valid number.
    """
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")

    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0

    try:
        return int(digits, base) if digits.isdigit() and len(digits) <= 20 else -1
    except ValueError:
        return -1


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
