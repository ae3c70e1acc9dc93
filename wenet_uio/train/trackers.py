"""Experiment trackers beside TensorBoard: curves, pictures, texts and audio of a run.

Each tracker gets them from a thread of its own, so that training waits for no server, and a tracker
that fails stops nothing: curves are sent again with the next entry. A resumed run continues its run
of the tracker: `trackers.json` has the number of the run there and the newest step of each curve
that was sent. Points that are missing there are sent from TensorBoard's files, which are exact.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wenet_uio.base.files import written_aside
from wenet_uio.base.imports import need_extra
from wenet_uio.config.named_code import Loaded


@dataclass(frozen=True)
class Entry:
    """What a tracker gets at a step."""

    step: int
    scalars: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)
    """(height, width, 3) uint8."""
    texts: Mapping[str, str] = field(default_factory=dict)
    audio: Mapping[str, tuple[np.ndarray, int]] = field(default_factory=dict)
    """Samples (T,), float32, and their rate in Hz."""

    def names(self) -> set[str]:
        """Return the names of everything in it."""
        return {*self.scalars, *self.pictures, *self.texts, *self.audio}


log = logging.getLogger(__name__)

BOARDS = {
    "wandb": Loaded("wenet_uio.addons.publish.board_wandb:WandbBoard"),
    "mlflow": Loaded("wenet_uio.addons.publish.board_mlflow:MlflowBoard"),
}
"""{tracker: `board(folder, run, config)`, a wenet_uio.train.trackers.Board}."""
RECORD = "trackers.json"
MOST_WAITING = 10_000
"""Items that may wait for a tracker; later ones are dropped and counted."""
PATIENCE = 300.0
"""Seconds at the end of a run in which a tracker may send what waits."""


class Board(Protocol):
    """A run of a tracker."""

    run: str
    """Its number; a resumed run opens the same one."""

    def write(self, entry: Entry) -> None:
        """Send an entry."""
        ...

    def close(self, *, complete: bool) -> None:
        """End the run, or this part of it."""
        ...


def check_trackers(names: Iterable[str]) -> None:
    """Make sure that the add-on of trackers and their packages are installed.

    Raises:
        ValueError: one is not; the message says which, and how to install it.
    """
    for name in names:
        if name != "tensorboard":
            BOARDS[name].require()
            need_extra(name, (name,))


def new_run_number(name: str) -> str:
    """Return the number of a new run; for MLflow, whose server chooses it, a name that stands for
    it until then.
    """
    if name == "wandb":
        return os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
    return f"new-{secrets.token_hex(8)}"


def open_board(name: str, folder: Path, run: str, config: Mapping[str, Any]) -> Board:
    """Open a run of a tracker, which is new if the tracker has no `run`."""
    return BOARDS[name](folder, run, config)


class Trackers:
    """The trackers of a run, on rank 0."""

    def __init__(self, names: Iterable[str], folder: Path, config: Mapping[str, Any]) -> None:
        self._names = [name for name in names if name != "tensorboard"]
        self._folder, self._config = folder, config
        self._senders: list[_Sender] = []

    def __bool__(self) -> bool:
        return bool(self._names)

    def open(self, written: Mapping[str, list[tuple[int, float]]] | None) -> None:
        """Start the threads.

        Args:
            written: of a resumed run, {curve: points (step, value) so far}; None in a new run.
        """
        path = self._folder / RECORD
        records = json.loads(path.read_text()) if written is not None and path.exists() else {}
        record = _Record(path, records)
        self._senders = [_Sender(name, self._folder, self._config, record) for name in self._names]
        for sender in self._senders:
            sender.catch_up(_entries_by_step(written or {}))

    def write(self, entry: Entry) -> None:
        """Send an entry to all trackers, without waiting for them."""
        for sender in self._senders:
            sender.put(entry)

    def close(self, *, complete: bool) -> None:
        """Send what waits, for at most PATIENCE seconds, and say what could not be sent."""
        for sender in self._senders:
            sender.end(complete=complete)
        for sender in self._senders:
            sender.join()


class _Record:
    """The file `trackers.json`: {tracker: {"run": number, "sent": {curve: newest step}}}."""

    def __init__(self, path: Path, of_trackers: dict[str, Any]) -> None:
        self._path, self._of_trackers = path, of_trackers
        self._lock = threading.Lock()

    def run_of(self, name: str) -> str | None:
        """Return the number of the run of a tracker; None before it is opened."""
        return self._of_trackers.get(name, {}).get("run")

    def sent_by(self, name: str) -> dict[str, int]:
        """Return {curve: newest step that a tracker has}."""
        return dict(self._of_trackers.get(name, {}).get("sent", {}))

    def keep(self, name: str, run: str, sent: Mapping[str, int]) -> None:
        """Write the number of the run of a tracker and what it has."""
        with self._lock:
            self._of_trackers[name] = {"run": run, "sent": dict(sent)}
            with written_aside(str(self._path), "w") as file:
                json.dump(self._of_trackers, file)


class _Sender:
    """The thread of a tracker."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], record: _Record) -> None:
        self._name, self._folder, self._config, self._record = name, folder, config, record
        self._given: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._waiting: deque[Entry] = deque()
        """Taken from `_given` by the thread, and not sent."""
        self._board: Board | None = None
        self._sent = record.sent_by(name)
        self._complete = False
        self._failures = self._lost = 0
        self._thread = threading.Thread(
            target=self._send_entries, name=f"tracker {name}", daemon=True
        )
        self._thread.start()

    def catch_up(self, entries: Iterable[Entry]) -> None:
        """Send points of earlier starts of the run that the tracker lacks."""
        sent = dict(self._sent)
        for entry in entries:
            if new := _unsent_part(entry, sent):
                self._given.put(new)

    def put(self, entry: Entry) -> None:
        """Let the thread send an entry; it is lost if too many wait."""
        if self._number_waiting() < MOST_WAITING:
            self._given.put(entry)
        else:
            self._lost += 1

    def end(self, *, complete: bool) -> None:
        """Let the thread end when it has sent what waits."""
        self._complete = complete
        self._given.put(None)

    def join(self) -> None:
        """Wait for the last entries to be sent; warn of those that are not."""
        self._thread.join(PATIENCE)
        unsent = self._number_waiting()
        if self._lost or unsent or self._thread.is_alive():
            log.warning(
                "%s: %d entries are lost there and %d not sent; TensorBoard's files have them",
                self._name,
                self._lost,
                unsent,
            )

    def _number_waiting(self) -> int:
        return self._given.qsize() + len(self._waiting)

    def _send_entries(self) -> None:
        """Send entries in their order until None comes."""
        while (entry := self._given.get()) is not None:
            self._waiting.append(entry)
            self._send_waiting()

        self._send_waiting()
        if self._board is not None:
            try:
                self._board.close(complete=self._complete)
            except Exception as error:
                self._note_failure(error)

    def _send_waiting(self) -> None:
        """Send what waits, up to a failure: then curves wait for the next attempt, other things are
        lost.
        """
        while self._waiting:
            entry = self._waiting[0]
            try:
                self._send(entry)
            except Exception as error:  # whatever a tracker raises, training goes on
                self._note_failure(error)
                if entry.names() == set(entry.scalars):
                    return
                self._lost += 1

            self._waiting.popleft()

    def _send(self, entry: Entry) -> None:
        """Write what the tracker lacks of an entry, and record that the tracker has it."""
        if self._board is None:
            run = self._record.run_of(self._name) or new_run_number(self._name)
            # A kill while it is opened makes no second run
            self._record.keep(self._name, run, self._sent)
            self._board = open_board(self._name, self._folder, run, self._config)
            self._record.keep(self._name, self._board.run, self._sent)

        unsent = _unsent_part(entry, self._sent)
        if unsent:
            self._board.write(unsent)
            self._sent |= dict.fromkeys(unsent.names(), unsent.step)
            self._record.keep(self._name, self._board.run, self._sent)

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            reason = f"{type(error).__name__}: {error}"
            log.warning("%s does not answer as it should, training goes on: %s", self._name, reason)


def _unsent_part(entry: Entry, sent: Mapping[str, int]) -> Entry | None:
    """Return the part of an entry that the tracker lacks; None if it has everything."""
    names = {name for name in entry.names() if entry.step > sent.get(name, -1)}

    def select_unsent(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name in names}

    if not names:
        return None
    return Entry(
        entry.step,
        select_unsent(entry.scalars),
        select_unsent(entry.pictures),
        select_unsent(entry.texts),
        select_unsent(entry.audio),
    )


def _entries_by_step(written: Mapping[str, list[tuple[int, float]]]) -> list[Entry]:
    """Return the points of curves in the order of their steps."""
    scalars_by_step: dict[int, dict[str, float]] = {}
    for name, points in written.items():
        for step, value in points:
            scalars_by_step.setdefault(step, {})[name] = value

    return [Entry(step, scalars_by_step[step]) for step in sorted(scalars_by_step)]
