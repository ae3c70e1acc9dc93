"""Which remote objects the prefetch process fetches next: a window over the plan that moves with
the cursor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from wenet_uio.dataset.corpus.base import RemoteObject
from wenet_uio.dataset.cursor import Cursor, Work


class Fetches(Protocol):
    """What fetches ahead: `storage.prefetch.Prefetch`, or a simulation of it."""

    def want(self, name: str, kind: str, objects: Sequence[RemoteObject]) -> None:
        """Fetch remote objects and keep them until `drop(name)`."""

    def drop(self, name: str) -> None:
        """Release the objects of that name."""

    def drop_all(self) -> None:
        """Release all objects."""


class ReadAhead:
    """Asks for the remote objects that the next batches need, and drops those of batches that were
    yielded.

    Of remote shards the window holds the current and the next group of each lane. Of remote files
    it holds the batches that were handed to workers.
    """

    def __init__(self, cursor: Cursor, prefetch: Fetches) -> None:
        """Begin a new window; objects that were wanted before are dropped."""
        self._cursor, self._prefetch = cursor, prefetch
        self._prefetch.drop_all()
        self._pass = -1
        # (name of the objects, (pass, position) from which on they are not needed)
        self._groups: deque[tuple[str, tuple[int, int]]] = deque()
        self._batches: deque[tuple[str, tuple[int, int]]] = deque()
        self._batches_wanted = self._groups_wanted = 0

    def works(self) -> Iterator[Work]:
        """Yield the work of the cursor to the end of its epoch; the window moves with it."""
        for place, work in self._cursor.upcoming():
            self._move_to(place, work)
            yield work

    def _move_to(self, place: tuple[int, int], work: Work) -> None:
        """Move the window: `work`, at `place` (pass, position), is about to be handed to a
        worker.
        """
        data_pass, position = place
        yielded = (self._cursor.data_pass, self._cursor.position)
        if data_pass != self._pass:
            self._follow_pass(data_pass, position)

        for window in (self._groups, self._batches):
            for name, end in list(window):
                if end <= yielded:
                    window.remove((name, end))
                    self._prefetch.drop(name)

        # The current and the next group of each lane and stream.
        most_groups = 2 * len(self._lanes) * self._plan.groups_of_a_row
        while len(self._groups) < most_groups:
            group = next(self._coming, None)
            if group is None:
                break

            _, end, shards = group
            self._groups_wanted += 1
            name = f"{data_pass} group {self._groups_wanted}"
            self._prefetch.want(name, "shards", self._plan.corpus.remote_shards(shards))
            self._groups.append((name, (data_pass, end)))

        files = self._cursor.corpus.remote_files(work.shards, work.rows)
        if files:
            self._batches_wanted += 1
            name = f"batch {self._batches_wanted}"
            self._prefetch.want(name, "files", files)
            self._batches.append((name, (data_pass, position + self._cursor.world_size)))

    def _follow_pass(self, data_pass: int, position: int) -> None:
        """Follow the groups of a pass from `position` on, in the lanes that this rank reads."""
        cursor = self._cursor
        self._pass, self._plan = data_pass, cursor.plan_of(data_pass)

        # The lane of batch t is t mod num_lanes, so the lanes of a rank repeat after num_lanes
        # steps or fewer.
        num_lanes = self._plan.lanes
        first_batch = position + cursor.rank
        self._lanes = sorted(
            {(first_batch + step * cursor.world_size) % num_lanes for step in range(num_lanes)}
        )
        self._coming = self._plan.shards_ahead(position, self._lanes)
