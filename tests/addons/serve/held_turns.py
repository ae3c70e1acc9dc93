"""Recordings of a server that wait for their turn, until a test lets them go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wenet_uio.addons.serve.turns import Turns
from wenet_uio.search.decode import Search
from wenet_uio.search.types import DecodeOptions


@contextmanager
def held_turns(turns: Turns) -> Iterator[Callable[[], None]]:
    """Give the turn to somebody who keeps it until the result is called, or the block ends."""
    begun, release = threading.Event(), threading.Event()

    def keep_turn(segments: list[Any]) -> list[Any]:
        begun.set()
        release.wait(60)
        return segments

    nobody = Search(["nobody"], DecodeOptions())
    holder = threading.Thread(target=turns.take, args=(nobody, keep_turn, [None]))
    holder.start()
    assert begun.wait(60)
    try:
        yield release.set
    finally:
        release.set()
        holder.join()
