"""XML in zip archives, such as .xlsx and .ods, read element by element with bounds.

A megabyte of zip can unpack to a gigabyte, and XML takes up to a hundred times its bytes as a tree.
So no tree of a whole member is made, and whatever a stranger's archive states, memory is bounded.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import IO, NamedTuple
from xml.etree.ElementTree import Element, iterparse
from xml.parsers import expat

MOST_UNPACKED = 1 << 29
"""Bytes of all members of an archive that are read."""
MOST_ELEMENTS = 20_000_000
"""Elements of all members of an archive; more would take minutes."""
MOST_HELD = 1 << 22
"""Bytes of one element that is read whole, such as a row; and of XML between two such elements that
cannot be dropped yet."""
MOST_DEPTH = 100
"""Elements that one element is inside of."""
MOST_NAMES = 10_000
"""Different names of elements and attributes in a member: the parser remembers all of them."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions of spreadsheets; the others cannot be unpacked in small blocks."""


class TooLargeError(ValueError):
    """An archive, or a table in it, is larger than any that is read."""


class Found(NamedTuple):
    """An element with all that is in it."""

    element: Element
    ancestors: tuple[Element, ...]
    """The elements that it is in, from the root on, with their attributes only."""


class XmlArchive:
    """An open zip archive with members of XML."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.members = frozenset(archive.namelist())
        self._archive = archive
        self._unpacked = 0
        self._elements = 0
        """Bytes and elements that were read until now."""

    def elements(self, member: str, name: str) -> Iterator[Found]:
        """Yield the elements of a name, in any namespace, in their order.

        Elements inside of an element of the same name are part of it. All that is no part of such an
        element is dropped as soon as it ends.

        Raises:
            KeyError: there is no such member.
            ParseError, ExpatError, ValueError: the member is damaged, or exceeds the bounds above.
        """
        if self._archive.getinfo(member).compress_type not in METHODS:
            raise ValueError(f"{member} is not compressed by deflate")

        names: set[str] = set()
        opened: list[Element] = []  # from the root to the innermost element that has not ended
        wanted: Element | None = None  # the element of the name that has not ended
        with self._archive.open(member) as file:
            source = _Source(self, file)
            for event, element in iterparse(source, ("start", "end")):
                if event == "start":
                    self._elements += 1
                    names.add(element.tag)
                    names.update(element.keys())
                    if len(names) > MOST_NAMES or len(opened) == MOST_DEPTH:
                        raise TooLargeError(
                            f"{member} has more than {MOST_NAMES} names of elements, or elements "
                            f"nested deeper than {MOST_DEPTH}"
                        )

                    opened.append(element)
                    if wanted is None and local_name(element) == name:
                        wanted = element
                    continue

                opened.pop()
                if element is wanted:
                    yield Found(element, tuple(opened))
                    wanted = None
                if wanted is None and opened:
                    del opened[-1][:]
                    source.held = 0

    def count(self, size: int) -> None:
        """Count bytes that were unpacked.

        Raises:
            TooLargeError: the archive has too many, or too many elements.
        """
        self._unpacked += size
        if self._unpacked > MOST_UNPACKED:
            raise TooLargeError(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB")
        if self._elements > MOST_ELEMENTS:
            raise TooLargeError(f"it has more than {MOST_ELEMENTS} elements of XML")


class _Source:
    """A member that is unpacked, as a file for a parser."""

    def __init__(self, archive: XmlArchive, file: IO[bytes]) -> None:
        self.held = 0
        """Bytes since the last element that was dropped."""
        self._archive, self._file = archive, file
        self._prolog: expat.XMLParserType | None = expat.ParserCreate()
        """Parses what comes before the root."""
        self._prolog.StartDoctypeDeclHandler = self._refuse_doctype
        self._prolog.StartElementHandler = self._end_prolog

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        data = self._file.read(size)
        self._archive.count(len(data))
        self.held += len(data)
        if self.held > MOST_HELD:
            raise TooLargeError(f"an element has more than {MOST_HELD >> 20} MiB")
        if self._prolog is not None:
            self._prolog.Parse(data)
        return data

    def _refuse_doctype(self, *_: object) -> None:
        """Refuse definitions of entities: a few bytes can stand for gigabytes."""
        raise ValueError("it has a DOCTYPE, which no spreadsheet needs")

    def _end_prolog(self, *_: object) -> None:
        self._prolog = None


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]
