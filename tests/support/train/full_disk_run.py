"""Run by test_full_disk.py: train on a disk that is full for some steps.

full_disk_run.py FOLDER SCENARIO

A disk of 4 MB is mounted at FOLDER/run, for this process alone. The run FOLDER/quiet has room.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.train.tiny import ListLoader
from tests.train.test_trainer import CV, TRAIN, make_trainer, same_weights, terminate
from wenet_uio.dataset.types import Batch
from wenet_uio.train.trainer import Trainer

NEW_MOUNTS, PRIVATE, RECURSIVE = 0x20000, 1 << 18, 1 << 14
"""CLONE_NEWNS of unshare(2); MS_PRIVATE and MS_REC of mount(2)."""
PAGE = 4096
KEYS = {"max_epoch": 2, "save_interval": 2, "report": False}
Events = dict[int, Callable[[], None]]
"""{number of a batch: what happens before it}."""


class EventfulLoader(ListLoader):
    """A loader with events; batches are counted over the epochs of this process."""

    def __init__(self, batches: list[Batch], events: Events) -> None:
        super().__init__(batches)
        self.events = events
        self.number = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            self.events.get(self.number, lambda: None)()
            self.number += 1
            yield batch


def mount(folder: Path) -> None:
    """Mount a disk for this process alone."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(NEW_MOUNTS)
        or libc.mount(b"none", b"/", None, PRIVATE | RECURSIVE, None)
        or libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, b"size=4m")
    ):
        print(json.dumps({"no disk": os.strerror(ctypes.get_errno())}))
        sys.exit()


class Run:
    """The run on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: list[list[str]] = []

    def trainer(self, train: Events | None = None, cv: Events | None = None) -> Trainer:
        """A trainer that resumes the run, whose loaders have events."""
        loaders = EventfulLoader(TRAIN, train or {}), EventfulLoader(CV, cv or {})
        self.newest = make_trainer(self.path, *loaders, **KEYS)
        return self.newest

    def fill(self, pages_left: int = 0) -> None:
        """Fill the disk, except for some pages, after the state that a thread writes."""
        self.await_state()
        status = os.statvfs(self.path)
        pages = status.f_bavail * status.f_frsize // PAGE - pages_left
        (self.path / "filler").write_bytes(bytes(pages * PAGE))

    def free(self) -> None:
        """Remove what `fill` wrote, after the state that a thread writes."""
        self.await_state()
        (self.path / "filler").unlink()
        self.note()

    def await_state(self) -> None:
        """Wait for the state that a thread writes."""
        if self.newest.folder._writing is not None:
            self.newest.folder._writing.result()

    def note(self) -> None:
        """Note the states that there are."""
        self.states.append(sorted(path.name for path in self.path.glob("*state_*")))

    def failing(self, trainer: Trainer) -> str:
        """The error of the system with which a trainer ends."""
        try:
            trainer.run()
        except OSError as error:
            return f"{Path(str(error.filename)).name}: {error.strerror}"
        return "none"


def passing(run: Run) -> str:
    """The disk is full for the state of step 2."""
    run.trainer({1: run.fill, 3: run.free}).run()
    return "none"


def weights(run: Run) -> str:
    """The disk is full at the end of the first epoch."""
    error = run.failing(run.trainer(cv={1: run.fill}))
    run.free()
    run.trainer().run()
    return error


def state(run: Run) -> str:
    """At the end of the first epoch the disk has room for the weights alone."""
    run.trainer({6: run.free}, {1: lambda: run.fill(pages_left=3)}).run()
    return "none"


def stopped(run: Run) -> str:
    """The disk is full at a SIGTERM in step 4."""

    def full_and_stopped() -> None:
        run.fill()
        terminate()

    error = run.failing(run.trainer({3: full_and_stopped}))
    run.free()
    run.trainer().run()
    return error


def last(run: Run) -> str:
    """At the end of the run the disk has room for the weights alone."""
    error = run.failing(run.trainer(cv={4: lambda: run.fill(pages_left=3)}))
    run.free()
    run.trainer().run()
    return error


def main(folder: str, scenario: str) -> None:
    """Run a scenario, and compare its weights with those of a run with room."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    run = Run(Path(folder, "run"))
    mount(run.path)
    quiet = Path(folder, "quiet")
    make_trainer(quiet, **KEYS).run()
    error = globals()[scenario](run)
    run.note()
    same = all(same_weights(run.path / name, quiet / name) for name in ("epoch_0.pt", "final.pt"))
    print(json.dumps({"error": error, "states": run.states, "same weights": same}))


if __name__ == "__main__":
    main(*sys.argv[1:])
