"""Write and read the folder of a training run; `wenet_uio.base.run_files` lists its files."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import torch
import yaml

from wenet_uio.base.files import naming, remove_left_over, temporary_path, written_aside
from wenet_uio.base.run_files import (
    ENVIRONMENT,
    FINAL_WEIGHTS,
    FRAMES,
    INIT,
    LEDGER,
    LOCK,
    RUNNING,
    TOO_LARGE,
    TRAIN_CONFIG,
    read_starts,
)
from wenet_uio.base.uris import shown_values
from wenet_uio.config import Config, save_config
from wenet_uio.config.named_files import changed_files, copy_files, with_names_of
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.weights import SpoiltError, first_sentence, load_checked, refuse_nonfinite
from wenet_uio.train.running_average import RunningAverage

KEPT_STATES = 2
"""The older state is the fallback if the newest one cannot be read."""

log = logging.getLogger(__name__)


class RunFolder:
    """The folder of a run.

    Files are written aside and renamed, so that each is complete or absent.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: TextIO | None = None
        self._writer = ThreadPoolExecutor(1, "state")
        self._writing: Future[None] | None = None
        """The state that a thread writes."""
        self._newest: str | None = None
        """Name of the newest state that was read or written."""

    def hold(self) -> None:
        """Lock the folder, because two runs must not write to the same one.

        The lock lasts until this object or the process ends.

        Rank 0 holds the lock for all ranks. It is a record lock: the kernel removes it with the
        process, also after a SIGKILL and a reboot; NFS knows it; and forked data workers do not
        inherit it.

        Raises:
            ValueError: another process holds the lock; the message names it.
        """
        if self._lock is not None:
            return

        # Mode "a+" keeps the text of another holder, for the error message.
        self.path.mkdir(parents=True, exist_ok=True)
        lock = (self.path / LOCK).open("a+", encoding="utf-8")
        lock.seek(0)

        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = lock.read().strip() or "another process"
            lock.close()
            raise ValueError(
                f"{self.path}: {holder} trains in this folder; wait for its end, stop it, or give "
                f"another --model_dir. If its machine is lost, delete {self.path / LOCK}"
            ) from None
        except OSError as error:
            log.warning(
                "%s cannot be locked (%s): see that no other run uses this folder",
                self.path,
                error.strerror,
            )

        with naming(self.path / LOCK):
            lock.truncate(0)
            lock.write(
                f"process {os.getpid()} of {platform.node()}, since "
                f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n"
            )
            lock.flush()

        self._lock = lock  # closing any handle of the file would remove the lock

    def open(self, config: Config, *, resumed: bool) -> None:
        """Create and lock the folder; write train.yaml and copies of the files that it names.

        A new run first deletes the records of an earlier run. The yaml names the copies relative to
        itself, so that the folder can be moved.

        Raises:
            ValueError: another run holds the folder, or this is a new run, but another run has
                written a state here.
        """
        self.hold()
        states = self._state_paths()
        if states and not resumed:
            raise ValueError(
                f"{states[0]}: another run has begun here meanwhile; start again to resume it"
            )

        if not resumed:
            for name in (ENVIRONMENT, LEDGER, TOO_LARGE, f"{INIT}.yaml"):
                (self.path / name).unlink(missing_ok=True)
            if (self.path / FRAMES).exists():
                shutil.rmtree(self.path / FRAMES)

        remove_left_over(self.path)

        save_config(copy_files(config, self.path), self.path / TRAIN_CONFIG)

    def note_start(self, environment: Mapping[str, Any]) -> None:
        """Add a start of the run to environment.yaml."""
        starts = read_starts(self.path)
        with written_aside(self.path / ENVIRONMENT, "w") as file:
            yaml.safe_dump([*starts, shown_values(dict(environment))], file, sort_keys=False)

    def refuse_strangers(self) -> None:
        """Refuse a folder with weights that a run would replace or mix with its own.

        Such are the epochs of another run, and a converted or downloaded model, whose final.pt
        would become a link.

        Raises:
            ValueError: the folder has such weights. Call this only if it has no state.
        """
        # init.pt is from a run that ended before its first state; a link that leads nowhere is from
        # one whose epochs were moved away.
        strangers = sorted(
            path.name
            for path in files_in(self.path)
            if path.suffix == ".pt" and path.name != f"{INIT}.pt" and path.exists()
        )
        if strangers:
            raise ValueError(
                f"{self.path}: holds {strangers[0]} of another model, or of a run without a state "
                "to resume from; give another --model_dir, or move these away: "
                f"{', '.join(strangers[:5])}"
            )

    def refuse_changed_files(self, config: Config) -> None:
        """Refuse to resume with another vocabulary or other statistics than the run began with.

        Raises:
            ValueError: a file that the config names differs from its copy in the folder.
        """
        if changed := changed_files(config, self.path):
            raise ValueError(
                f"{', '.join(changed)} changed since the run in {self.path} began: restore the "
                "former contents, of which the folder has a copy; or go on with the new ones with "
                "--allow_data_changes; or start a new run from the weights with --checkpoint"
            )

    def save_weights(self, name: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Write a plain state dict to `name`.pt."""
        with written_aside(self.path / f"{name}.pt") as file:
            torch.save(dict(weights), file)

    def save_epoch(
        self,
        epoch: int,
        weights: Mapping[str, torch.Tensor],
        measured: Mapping[str, Any],
        average: RunningAverage | None = None,
    ) -> None:
        """Write the weights of an epoch, its running average, and its yaml with `measured`."""
        tag = f"epoch_{epoch}"
        if average is not None:
            measured = {**measured, "model_avg": average.record()}
            if average.count:
                self.save_weights(f"{RUNNING}_{epoch}", average.weights(weights))

        self.save_weights(tag, weights)
        self.save_measured(tag, epoch, measured)

    def save_measured(self, tag: str, epoch: int, measured: Mapping[str, Any]) -> None:
        """Write what was measured of the weights `tag`.pt to `tag`.yaml."""
        record = {
            "epoch": epoch,
            **measured,
            "tag": tag,
            "save_time": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        with written_aside(self.path / f"{tag}.yaml", "w") as file:
            yaml.safe_dump(record, file, sort_keys=False)

    def save_state(
        self,
        step: int,
        state: Mapping[str, Any],
        *,
        meanwhile: bool = False,
        needed: bool = True,
    ) -> None:
        """Write state_S.pt and delete all but the KEPT_STATES newest states.

        Args:
            meanwhile: a thread writes the state, which must not change any more. The next call
                waits for it.
            needed: raise an error of the system, such as that of a full disk. Otherwise it is a
                warning, because a later state is a new try.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

        write = self._write_state if needed else self._try_state
        if meanwhile:
            self._writing = self._writer.submit(write, step, state)
        else:
            write(step, state)

    def settle(self) -> None:
        """Wait for the state that a thread writes.

        The log has its error, as another error may end the run.
        """
        writing, self._writing = self._writing, None
        error = writing.exception() if writing is not None else None
        if error is not None:
            log.warning("a state could not be written: %s", error)

    def _try_state(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a state, or say what is missing if the system does not let it."""
        try:
            self._write_state(step, state)
        except OSError as error:
            log.warning(
                "%s could not be written (%s): training goes on, and the next state is a new try; "
                "until then a run that ends resumes from %s",
                self.path / f"state_{step}.pt",
                error.strerror or error,
                self._newest or "its start",
            )

    def _write_state(self, step: int, state: Mapping[str, Any]) -> None:
        with written_aside(self.path / f"state_{step}.pt") as file:
            torch.save(dict(state), file)
        self._newest = f"state_{step}.pt"

        for path in self._state_paths()[KEPT_STATES:]:
            path.unlink()

    def newest_state(self) -> dict[str, Any] | None:
        """Load the newest state that is not damaged; None if the folder has no state.

        Raises:
            OSError: the system does not let a state be read. The state may be whole, so no older
                one is taken.
            ValueError: there are states, but all are damaged, or numbers in them are infinite or
                NaN.
        """
        states = self._state_paths()
        spoilt: SpoiltError | None = None
        for path in states:
            try:
                state = _load_state(path)
            except OSError:
                raise
            except SpoiltError as error:
                log.warning("%s; it is skipped", error)
                spoilt = spoilt or error
            except Exception as error:
                # torch raises RuntimeError, UnpicklingError, EOFError and others for an incomplete
                # file.
                log.warning("%s cannot be read and is skipped: %s", path, first_sentence(error))
            else:
                self._newest = path.name
                return state

        if spoilt is not None:
            raise spoilt
        if states:
            raise ValueError(
                f"{self.path}: no state_*.pt can be read; delete them and epoch_* to start a new "
                "run"
            )

        return None

    def keep(self, last: int | None, best: int) -> None:
        """Delete the weights of all but the `last` newest epochs and the `best` epochs by loss.

        With `last` None all weights are kept. The target of final.pt is kept as well, and the newest
        epoch with a finite loss, which may become its target. Epochs without are never best.
        """
        if last is None:
            return

        losses = self._epoch_losses()
        newest = sorted(losses, reverse=True)[:last]
        finite = [epoch for epoch, loss in losses.items() if math.isfinite(loss)]
        by_loss = sorted(finite, key=lambda epoch: losses[epoch])
        kept = {*newest, *by_loss[:best], max(finite, default=-1)}
        final = (self.path / FINAL_WEIGHTS).resolve().name

        for epoch in losses:
            if epoch not in kept and final != f"epoch_{epoch}.pt":
                (self.path / f"epoch_{epoch}.yaml").unlink()
                for name in ("epoch", RUNNING):
                    (self.path / f"{name}_{epoch}.pt").unlink(missing_ok=True)

    def finish(self, epoch: int) -> None:
        """Link final.pt to the weights of `epoch`, or of the newest one before it that has a finite
        validation loss.

        Raises:
            ValueError: there is none.
        """
        losses = self._epoch_losses()
        finite = [number for number, loss in losses.items() if math.isfinite(loss)]
        newest = max((number for number in finite if number <= epoch), default=None)
        if newest is None:
            raise ValueError(
                f"{self.path}: no final.pt, because no epoch has a finite validation loss: lower "
                "optim_conf.lr, or check the validation set; the log says more"
            )
        if newest != epoch:
            log.warning(
                "%s: the validation of epoch %d is not finite, so final.pt is epoch %d",
                self.path,
                epoch,
                newest,
            )

        # A link cannot be changed, but a rename replaces it without a moment in which it is absent.
        new_link = temporary_path(self.path / FINAL_WEIGHTS)
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(f"epoch_{newest}.pt")
        new_link.replace(self.path / FINAL_WEIGHTS)

    def _state_paths(self) -> list[Path]:
        """Return paths of the states, newest first."""
        return [path for _, path in sorted(numbered_files(self.path, "state_*.pt"), reverse=True)]

    def _epoch_losses(self) -> dict[int, float]:
        """Return {epoch: validation loss} of all epochs with a yaml."""
        losses: dict[int, float] = {}
        for epoch, path in numbered_files(self.path, "epoch_*.yaml"):
            losses[epoch] = read_yaml(path)["loss_dict"]["loss"]
        return losses


def files_in(folder: Path) -> list[Path]:
    """Return the paths in a folder; none if it is missing.

    `Path.glob` takes a folder that may not be listed for an empty one.

    Raises:
        OSError: the folder cannot be listed.
    """
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _load_state(path: Path) -> dict[str, Any]:
    """Load a state.

    Raises:
        SpoiltError: numbers in it are infinite or NaN.
        Exception: as `load_checked`.
    """
    state = load_checked(path)
    refuse_nonfinite(
        dict(_nested_tensors(state)),
        path,
        "start a run in another folder with --checkpoint and an earlier epoch",
    )
    return state


def _nested_tensors(content: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested dictionaries, with names such as `optimizer/ctc.bias/exp_avg`."""
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _nested_tensors(value, f"{name}/{key}" if name else str(key))


def numbered_files(folder: Path, pattern: str) -> list[tuple[int, Path]]:
    """Return (number, path) of the files whose names match `pattern` with a number in place of `*`.

    Raises:
        OSError: the folder cannot be listed.
    """
    name = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)"))
    numbered: list[tuple[int, Path]] = []
    for path in files_in(folder):
        match = name.fullmatch(path.name)
        if match:
            numbered.append((int(match[1]), path))
    return numbered


def changes_since(state: Mapping[str, Any], config: Config, seed: int) -> list[str]:
    """List the differences between the config and seed of a state and those of this run.

    Another signature of a URI is no change, and neither is another path of a file of the model:
    `RunFolder.refuse_changed_files` compares the contents.
    """
    then, now = shown_values(state["config"]), shown_values(config.model_dump(mode="json"))
    now = with_names_of(now, then)
    return config_differences({**then, "seed": state["seed"]}, {**now, "seed": seed})


def changed_lists(
    before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """List the data lists whose records are not those of a state, as lines.

    A list that was moved is no change. The plan of an epoch depends on the order of the utterances
    and on where its shards begin, so the same utterances that are packed in another way are one.
    """
    changes: list[str] = []
    for name, record in now.items():
        former = before[name]
        if former["digest"] != record["digest"]:
            former_size, size = _describe_size(former), _describe_size(record)
            change = f"{former_size} -> {size}"
            if former_size == size:
                change = "other utterances, another order or other shards"
            changes.append(f"{name} {record['list']}: {change}")
        elif former["contents"] != record["contents"] and former["list"] == record["list"]:
            changes.append(
                f"{name} {record['list']}: texts, or other contents, of equal length, or another "
                "type of list"
            )

    return changes


def _describe_size(record: Mapping[str, Any]) -> str:
    """Describe how large the list of a record is."""
    return f"{record['utterances']} utterances and {record['hours']} hours"


def config_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """List the differences between two dumped configs, as `path: old -> new` lines."""
    changes: list[str] = []
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changes += config_differences(old, new, f"{prefix}{key}.")
        elif old != new:
            changes.append(f"{prefix}{key}: {old} -> {new}")

    return changes
