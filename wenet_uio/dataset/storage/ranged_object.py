"""A remote object as bytes that are fetched by byte range when they are asked for.

Whoever reads the headers of a large object needs a small part of it, in places that only the
headers before tell. A request takes about as long as reading 128 KB, so a place that is nearer than
that to the last one is read through, and each request then asks for twice as much as the one
before. A farther place is asked for anew, with a little of what follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from wenet_uio.base.messages import warn_once
from wenet_uio.base.uris import server_of
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.transfer import transport, version_of
from wenet_uio.dataset.storage.versions import NoRangesError, Version, check_version

Result = TypeVar("Result")

REQUESTS = 64
"""Requests to stores at the same time, while objects are indexed."""
NEAR = 1 << 17
"""Bytes that are read through rather than asked for anew: as many come in the time of a request
(30 to 50 ms) at 3 to 4 MB/s."""
LEAST_AHEAD, MOST_AHEAD = 12 << 10, 1 << 21
"""Bytes that are read behind what was asked for: room for headers, a text, and the beginning of
audio; and as many as make a request worth its time."""
KEPT_BYTES = 1 << 14
"""Longer slices are not kept."""
SEARCHED, BEHIND = 1 << 16, 1 << 10
"""Bytes that are searched at a time, and bytes before them that are fetched too."""
_without_ranges: set[str] = set()
"""Servers that send whole objects only, or ranges at a high price."""


def by_range(uri: str, read: Callable[[], Result]) -> Result | None:
    """Call a function that reads an object by byte ranges; None if its server sends none, which a
    line of the log says once.

    Raises:
        the errors of `read`, without NoRangesError.
    """
    server = server_of(uri)
    if server in _without_ranges:
        return None

    try:
        return read()
    except NoRangesError as error:
        _without_ranges.add(server)
        warn_once(f"{error}; its objects are fetched whole to be indexed")
        return None


class _Window(threading.local):
    """The bytes that a thread fetched last, and how many more it asks for."""

    start = end = 0
    data = b""
    ahead = LEAST_AHEAD


class RangedObject:
    """A remote object of one version, as a sequence of bytes.

    Several threads may read from it, each with a window of its own. Short slices are kept, so that
    one who reads them again asks the store for nothing.

    Every reading raises OSError if the store does not give the bytes, and NoRangesError if it sends
    whole objects only.
    """

    def __init__(self, uri: str, version: Version) -> None:
        """Fetch nothing yet; the version must state a size."""
        assert version.size is not None
        self._uri, self._version, self._size = uri, version, version.size
        self._window = _Window()
        self._kept: dict[tuple[int, int], bytes] = {}
        self._searched: dict[tuple[bytes, int, int], int] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, end, _ = place.indices(self._size)
        data = self._kept.get((start, end))
        if data is None:
            data = self.between(start, end)
            if len(data) <= KEPT_BYTES:
                self._kept[start, end] = data

        return data

    def between(self, start: int, end: int) -> bytes:
        """Return bytes `start` up to `end`, or up to the end of the object, without keeping them."""
        end = min(end, self._size)
        if start >= end:
            return b""

        window = self._window
        if not window.start <= start <= end <= window.end:
            self._fetch(window, start, end)
        return window.data[start - window.start : end - window.start]

    def find(self, mark: bytes, start: int, end: int) -> int:
        """Return the first place of `mark` in bytes `start` up to `end`; -1 if there is none."""
        place = self._searched.get((mark, start, end))
        if place is None:
            place = self._searched[mark, start, end] = self._find(mark, start, min(end, self._size))
        return place

    def check_version(self) -> None:
        """Check that all bytes are of one version; to be called after the last reading.

        Raises:
            ChangedError: the object was replaced.
        """
        if not transport(self._uri).states_version:
            check_version(version_of(self._uri), self._version, self._uri)

    def _fetch(self, window: _Window, start: int, end: int) -> None:
        """Move a window to `start`."""
        is_near = window.start <= start <= window.end + NEAR
        window.ahead = min(2 * window.ahead, MOST_AHEAD) if is_near else LEAST_AHEAD
        end = min(end + window.ahead, self._size)
        window.data = objects.read_range(self._uri, start, end, self._version, one_of_many=True)
        window.start, window.end = start, end

    def _find(self, mark: bytes, start: int, end: int) -> int:
        """Return the first place of `mark` from `start` on that ends before `end`; -1 if there is
        none.
        """
        window = self._window
        while start + len(mark) <= end:
            if not window.start <= start <= window.end - len(mark):
                # Whoever finds a mark reads what is around it.
                self._fetch(window, max(0, start - BEHIND), min(end, start + SEARCHED))

            place = window.data.find(mark, start - window.start, end - window.start)
            if place >= 0:
                return window.start + place

            start = window.end - len(mark) + 1
        return -1
