"""Says which rank keeps the others waiting, and where it is."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wenet_uio.train.distributed import World

log = logging.getLogger(__name__)

GRACE = 3.0
"""Seconds that a rank is given to post after another one did."""


@dataclass(frozen=True)
class Post:
    """What a rank says of itself when nothing has happened for too long."""

    place: int
    """Beats so far: the rank with the fewest is behind."""
    doing: str
    process: str
    stack: str


class Watchdog:
    """A thread that looks whether `beat` was called within the last `seconds`; 0 seconds: it never looks.

    When it was not, each rank posts where its main thread is, and the lowest rank that answers reports: the ranks that
    are behind with their stacks, and those that do not even answer. It ends nothing; the timeout of the exchanges does.
    """

    def __init__(self, world: World, seconds: float) -> None:
        self.world = world
        self.seconds = seconds
        self._post = Post(0, "starting", f"process {os.getpid()} of {platform.node()}", "")
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the thread that calls this."""
        if self.seconds and self._thread is None:
            self._watched = threading.get_ident()
            self._last = time.monotonic()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(GRACE)

    def beat(self, doing: str) -> None:
        """This rank goes on to `doing`; all ranks call this in the same order."""
        self._post = Post(self._post.place + 1, doing, self._post.process, "")
        self._last = time.monotonic()

    def _watch(self) -> None:
        board = self.world.notice_board("watchdog") if self.world.size > 1 else None
        interval = min(self.seconds / 4, 5.0)
        own = str(self.world.rank)
        reported: Post | None = None
        while not self._ended.wait(interval):
            post = self._post
            if post is reported:
                continue
            if reported is not None and board is not None:
                board.delete_key(own)
            reported = None
            if time.monotonic() - self._last < self.seconds:
                continue
            reported = post
            posts = {self.world.rank: replace(post, stack=self._stack())}
            if board is not None:
                board.set(own, json.dumps(asdict(posts[self.world.rank])))
                self._ended.wait(interval + GRACE)
                ranks = [rank for rank in range(self.world.size) if board.check([str(rank)])]
                posts = {rank: Post(**json.loads(board.get(str(rank)))) for rank in ranks}
            if post is self._post and min(posts) == self.world.rank:
                log.error("%s", describe(self.seconds, posts, self.world.size))

    def _stack(self) -> str:
        return "".join(traceback.format_stack(sys._current_frames()[self._watched]))


def describe(seconds: float, posts: Mapping[int, Post], size: int) -> str:
    """The report: who is behind, and where."""
    behind = min(post.place for post in posts.values())
    furthest = max(posts.values(), key=lambda post: post.place)
    silent = ", ".join(str(rank) for rank in range(size) if rank not in posts)
    lines = [f"nothing has happened for {seconds:g} s"]
    if silent:
        lines.append(f"rank {silent} does not answer: its process is stopped or gone")
    for rank, post in sorted(posts.items()):
        if post.place == behind and not (silent and behind == furthest.place):
            others = f", others at: {furthest.doing}" if behind < furthest.place else ""
            lines.append(
                f"rank {rank} ({post.process}) is at: {post.doing}{others}; it waits in\n{post.stack.rstrip()}"
            )
    return "\n".join(lines)
