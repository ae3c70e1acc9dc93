"""Report which rank makes the others wait, and where it waits."""

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
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage] # no __all__

    from wenet_uio.train.distributed import World

log = logging.getLogger(__name__)

GRACE = 3.0
"""Seconds within which the other ranks must post after the first rank did."""


@dataclass(frozen=True)
class Post:
    """The state of a rank, posted when the rank has made no progress for too long."""

    beats: int
    """Number of calls of `beat`; the rank with the fewest is behind."""
    doing: str
    """Argument of the last beat."""
    process: str
    """Process id and host."""
    stack: str
    """Stack of the main thread."""


class Watchdog:
    """A thread that checks whether `beat` was called within the last `seconds`.

    With 0 seconds it checks nothing.

    If not, each rank posts the stack of its main thread. The lowest rank that answers logs the
    stacks of the ranks that are behind, and the ranks that do not answer. The watchdog does not end
    the run; the timeout of the exchanges does.
    """

    def __init__(self, world: World, seconds: float) -> None:
        self.world = world
        self.seconds = seconds
        self._post = Post(0, "starting", f"process {os.getpid()} of {platform.node()}", "")
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to watch the calling thread."""
        if self.seconds and self._thread is None:
            self._watched = threading.get_ident()
            self._last = time.monotonic()
            self._thread = threading.Thread(target=self._watch_beats, name="watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(GRACE)

    def beat(self, doing: str) -> None:
        """Record progress: this rank now does `doing`.

        All ranks must call this in the same order.
        """
        self._post = Post(self._post.beats + 1, doing, self._post.process, "")
        self._last = time.monotonic()

    def _watch_beats(self) -> None:
        """Report a lack of progress once, until there is progress again; runs in a thread.

        Ranks without progress put their posts on the board of all ranks. The lowest of them logs
        the posts of all.
        """
        board = self.world.notice_board("watchdog") if self.world.size > 1 else None
        interval = min(self.seconds / 4, 5.0)
        rank = str(self.world.rank)
        reported: Post | None = None

        while not self._ended.wait(interval):
            post = self._post
            if post is reported:
                continue

            # There was progress since the last report: the post of this rank is out of date.
            if reported is not None and board is not None:
                board.delete_key(rank)

            reported = None
            if time.monotonic() - self._last < self.seconds:
                continue

            reported = post
            stack = "".join(traceback.format_stack(sys._current_frames()[self._watched]))
            posts = {self.world.rank: replace(post, stack=stack)}
            if board is not None:
                board.set(rank, json.dumps(asdict(posts[self.world.rank])))
                self._ended.wait(interval + GRACE)
                posts = self._posts_on(board)

            if post is self._post and min(posts) == self.world.rank:
                log.error("%s", describe_waiting(self.seconds, posts, self.world.size))

    def _posts_on(self, board: Store) -> dict[int, Post]:
        """Return the posts of the ranks that answered."""
        ranks = [rank for rank in range(self.world.size) if board.check([str(rank)])]
        return {rank: Post(**json.loads(board.get(str(rank)))) for rank in ranks}


def describe_waiting(seconds: float, posts: Mapping[int, Post], size: int) -> str:
    """Report the ranks that are behind, with their stacks, and the ranks that do not answer.

    Args:
        seconds: time without progress.
        posts: {rank: post} of the ranks that answered.
        size: number of all ranks.
    """
    fewest = min(post.beats for post in posts.values())
    furthest = max(posts.values(), key=lambda post: post.beats)
    silent = ", ".join(str(rank) for rank in range(size) if rank not in posts)
    lines = [f"no progress for {seconds:g} s"]
    if silent:
        lines.append(f"rank {silent} does not answer: its process is stopped or dead")

    for rank, post in sorted(posts.items()):
        # If all ranks that answer wait at one place, they wait for the silent ones.
        is_behind = post.beats == fewest and not (silent and fewest == furthest.beats)
        if is_behind:
            ahead = f", others at: {furthest.doing}" if fewest < furthest.beats else ""
            lines.append(
                f"rank {rank} ({post.process}) is at: {post.doing}{ahead}; "
                f"stack:\n{post.stack.rstrip()}"
            )

    return "\n".join(lines)
