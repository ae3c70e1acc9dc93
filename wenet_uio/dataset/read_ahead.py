"""The window of remote objects that the prefetch process fetches ahead of the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from wenet_uio.dataset.loader import Loader

from collections import deque


class ReadAhead:
    """Tells the prefetching what is needed next, a window that moves with what was yielded.

    Of remote shards the window is this group and the next of each lane; of remote files, the batches that the workers
    were given.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader, self._prefetch, self._corpus = loader, loader.prefetch, loader.corpus
        self._prefetch.drop_all()
        self._pass = -1
        self._groups: deque[tuple[str, tuple[int, int]]] = deque()
        self._batches: deque[tuple[str, tuple[int, int]]] = deque()
        self._handed_out = 0

    def read_on(self, data_pass: int, position: int, shards: np.ndarray, rows: np.ndarray) -> None:
        """These samples, of the step at `position` of a pass, are about to be handed to a worker."""
        yielded = (self._loader.data_pass, self._loader.position)
        if data_pass != self._pass:
            self._enter(data_pass, position)
        for window in (self._groups, self._batches):
            for name, end in list(window):
                if end <= yielded:
                    window.remove((name, end))
                    self._prefetch.drop(name)
        while len(self._groups) < 2 * len(self._lanes) and (group := next(self._coming, None)):
            first, end, members = group
            name = f"{data_pass} {first}"
            self._prefetch.want(name, "shards", self._plan.corpus.remote_shards(members))
            self._groups.append((name, (data_pass, end)))
        if files := self._corpus.remote_files(shards, rows):
            self._handed_out += 1
            self._prefetch.want(f"batch {self._handed_out}", "files", files)
            self._batches.append((f"batch {self._handed_out}", (data_pass, position + self._loader.world_size)))

    def _enter(self, data_pass: int, position: int) -> None:
        loader, self._pass = self._loader, data_pass
        self._plan = loader.plan_of(data_pass)
        number = self._plan.lanes
        self._lanes = sorted({(position + loader.rank + step * loader.world_size) % number for step in range(number)})
        self._coming = self._plan.shards_ahead(position, self._lanes)
