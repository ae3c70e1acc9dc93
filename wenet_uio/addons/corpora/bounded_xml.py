"""XML, read element by element with bounds: files such as .eaf, and members of zip archives such as
.xlsx and .ods.

A megabyte of zip can unpack to a gigabyte, and XML takes up to a hundred times its bytes as a tree.
So no tree of a whole file is made, and whatever a stranger's file states, memory is bounded.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from typing import IO, NamedTuple
from xml.etree.ElementTree import Element, ParseError, iterparse
from xml.parsers import expat

MOST_BYTES = 1 << 29
"""Bytes of XML that are read: of a file, or of all members of an archive."""
MOST_ELEMENTS = 20_000_000
"""Elements in these bytes; more would take minutes."""
MOST_HELD = 1 << 22
"""Bytes of one element that is read whole, such as a row; and of XML between two such elements that
cannot be dropped yet."""
MOST_DEPTH = 100
"""Elements that one element is inside of."""
MOST_NAMES = 10_000
"""Different names of elements and attributes in a file: the parser remembers all of them."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions of spreadsheets; the others cannot be unpacked in small blocks."""
DAMAGE = (ParseError, expat.ExpatError, LookupError, ValueError)
"""Errors of reading damaged XML; a LookupError if it names an unknown encoding."""


class TooLargeError(ValueError):
    """A file, or a table in it, is larger than any that is read."""


class Found(NamedTuple):
    """An element with all that is in it."""

    element: Element
    ancestors: tuple[Element, ...]
    """The elements that it is in, from the root on, with their attributes only."""


class XmlReader:
    """Reads XML, and counts what it has read."""

    def __init__(self) -> None:
        self._bytes = 0
        self._elements = 0

    def elements(self, file: IO[bytes], called: str, names: Collection[str]) -> Iterator[Found]:
        """Yield the elements of these names, in any namespace, in their order.

        Elements inside of such an element are part of it. All that is no part of such an element is
        dropped as soon as it ends.

        Args:
            file: an open file of XML.
            called: its name in errors.
            names: without namespaces.

        Raises:
            ParseError, ExpatError, LookupError, ValueError: the XML is damaged.
            TooLargeError: it exceeds the bounds above.
        """
        names_in_file: set[str] = set()
        opened: list[Element] = []  # from the root to the innermost element that has not ended
        wanted: Element | None = None  # the element of these names that has not ended
        source = _Source(self, file)
        for event, element in iterparse(source, ("start", "end")):
            if event == "start":
                self._elements += 1
                names_in_file.add(element.tag)
                names_in_file.update(element.keys())
                if len(names_in_file) > MOST_NAMES or len(opened) == MOST_DEPTH:
                    raise TooLargeError(
                        f"{called} has more than {MOST_NAMES} names of elements, or elements "
                        f"nested deeper than {MOST_DEPTH}"
                    )

                opened.append(element)
                if wanted is None and local_name(element) in names:
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
        """Count further bytes.

        Raises:
            TooLargeError: there are too many, or too many elements.
        """
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise TooLargeError(f"it has more than {MOST_BYTES >> 20} MiB of XML")
        if self._elements > MOST_ELEMENTS:
            raise TooLargeError(f"it has more than {MOST_ELEMENTS} elements of XML")


class XmlArchive:
    """An open zip archive with members of XML; the bounds are those of all members together."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.members = frozenset(archive.namelist())
        self._archive = archive
        self._reader = XmlReader()

    def elements(self, member: str, name: str) -> Iterator[Found]:
        """Yield the elements of a name in a member, see `XmlReader`.

        Raises:
            KeyError: there is no such member.
        """
        if self._archive.getinfo(member).compress_type not in METHODS:
            raise ValueError(f"{member} is not compressed by deflate")

        with self._archive.open(member) as file:
            yield from self._reader.elements(file, member, {name})


class _Source:
    """A file that is counted and checked while a parser reads it."""

    def __init__(self, reader: XmlReader, file: IO[bytes]) -> None:
        self.held = 0
        """Bytes since the last element that was dropped."""
        self._reader, self._file = reader, file
        self._prolog: expat.XMLParserType | None = expat.ParserCreate()
        """Parses what comes before the root."""
        self._prolog.StartDoctypeDeclHandler = self._refuse_doctype
        self._prolog.StartElementHandler = self._end_prolog

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        data = self._file.read(size)
        self._reader.count(len(data))
        self.held += len(data)
        if self.held > MOST_HELD:
            raise TooLargeError(f"an element has more than {MOST_HELD >> 20} MiB")
        if self._prolog is not None:
            self._prolog.Parse(data)
        return data

    def _refuse_doctype(self, *_: object) -> None:
        """Refuse definitions of entities: a few bytes can stand for gigabytes."""
        raise ValueError("it has a DOCTYPE, which no such file needs")

    def _end_prolog(self, *_: object) -> None:
        self._prolog = None


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]
