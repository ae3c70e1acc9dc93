from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import platform
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml

from tests.support.data.read_only import shared_folder, unprivileged
from tests.support.train.tiny import TinyModel, tiny_config
from wenet_uio.base.files import written_aside
from wenet_uio.config import load_config
from wenet_uio.models.weights import load_weights
from wenet_uio.train.checkpoint import RunFolder, config_differences


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def test_open_writes_the_config_and_deletes_incomplete_files(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "exp" / "run")
    folder.open(tiny_config(), resumed=False)
    assert load_config(folder.path / "train.yaml").model_dump() == tiny_config().model_dump()
    (folder.path / ".state_1.pt.0123456789ab.tmp").write_bytes(b"half")
    (folder.path / ".notes.tmp").write_text("of the user")
    folder.open(tiny_config(), resumed=True)
    assert names(folder.path, ".*") == [".notes.tmp"]


def test_a_run_that_resumes_leaves_alone_what_another_process_writes_in_its_folder(
    tmp_path: Path,
) -> None:
    ready, says_ready = os.pipe()
    wait, says_go_on = os.pipe()
    process = os.fork()
    if not process:
        with written_aside(tmp_path / "avg.pt") as file:  # as average_model.py
            file.write(b"half")
            os.write(says_ready, b".")
            os.read(wait, 1)
        os._exit(0)
    os.read(ready, 1)
    RunFolder(tmp_path).open(tiny_config(), resumed=True)
    os.write(says_go_on, b".")
    os.waitpid(process, 0)
    assert (tmp_path / "avg.pt").read_bytes() == b"half"
    assert not names(tmp_path, ".*")


def holding(folder: Path) -> int:
    """Fork a process that holds the folder, and a process of its own which inherits all files; its
    process id.
    """
    ready, says_ready = os.pipe()
    process = os.fork()
    if not process:
        held = RunFolder(folder)
        held.hold()
        if os.fork():
            os.write(says_ready, b".")
        time.sleep(100)
        os._exit(0)
    os.read(ready, 1)
    return process


def test_a_folder_that_another_process_holds_is_refused_by_name_until_that_process_ends(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    process = holding(folder)
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for path in (folder, tmp_path / "run/../run"):
        with pytest.raises(
            ValueError, match=rf"run: process {process} of {platform.node()}, since 20.*--model_dir"
        ):
            RunFolder(path).hold()
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    RunFolder(folder).hold()  # although a process that it forked, such as a data worker, lives on
    os.kill(int(child), signal.SIGKILL)


def test_a_lock_file_of_a_run_that_ended_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "running.lock").write_text(
        "process 1 of a machine that was switched off, since yesterday\n"
    )
    folder = RunFolder(tmp_path)
    folder.hold()
    folder.hold()
    assert f"process {os.getpid()} of {platform.node()}" in (tmp_path / "running.lock").read_text()


def test_a_file_system_without_locks_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    RunFolder(tmp_path).hold()
    assert f"{tmp_path} cannot be locked (No locks available)" in caplog.text


def test_a_new_run_refuses_a_folder_in_which_another_run_began_meanwhile(tmp_path: Path) -> None:
    RunFolder(tmp_path).save_state(3, {"step": 3})
    with pytest.raises(
        ValueError, match=r"state_3\.pt: another run has begun here meanwhile; start again"
    ):
        RunFolder(tmp_path).open(tiny_config(), resumed=False)


def test_a_new_run_deletes_records_of_an_earlier_run_and_a_resumed_run_keeps_them(
    tmp_path: Path,
) -> None:
    notes = ["bad_samples.jsonl", "environment.yaml", "too_large.jsonl"]
    for name in notes:
        (tmp_path / name).touch()
    RunFolder(tmp_path).open(tiny_config(), resumed=True)
    assert names(tmp_path, "*.[jy]*") == [*notes, "train.yaml"]
    RunFolder(tmp_path).open(tiny_config(), resumed=False)
    assert names(tmp_path, "*.[jy]*") == ["train.yaml"]


def test_weights_are_a_plain_state_dict_that_loads_back(tmp_path: Path) -> None:
    model, other = TinyModel(), TinyModel()
    RunFolder(tmp_path).save_weights("init", model.state_dict())
    load_weights(other, tmp_path / "init.pt")
    assert all(
        torch.equal(weight, other.state_dict()[name]) for name, weight in model.state_dict().items()
    )


def test_two_states_are_kept_and_the_newest_readable_one_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)
    assert folder.newest_state() is None
    for step in (8, 9, 10):
        folder.save_state(step, {"step": step})
    assert names(tmp_path, "state_*") == ["state_10.pt", "state_9.pt"]
    assert folder.newest_state() == {"step": 10}
    whole = (tmp_path / "state_10.pt").read_bytes()
    (tmp_path / "state_10.pt").write_bytes(whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING):
        assert folder.newest_state() == {"step": 9}
    assert "state_10.pt cannot be read" in caplog.text
    (tmp_path / "state_9.pt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"no state_\*\.pt can be read"):
        folder.newest_state()


def test_a_state_that_a_thread_writes_is_complete_before_the_next_one(tmp_path: Path) -> None:
    folder, seen = RunFolder(tmp_path), []
    for step in (8, 9, 10):
        folder.save_state(step, {"step": step}, meanwhile=True)
        seen.append(folder.newest_state())
    folder.settle()
    # The state before is there, the new one perhaps
    possible = [
        None,
        *({"step": step} for step in (8, 9, 10)),
    ]
    for state, one_of in zip(seen, pairwise(possible), strict=True):
        assert state in one_of
    assert names(tmp_path, "*state_*") == ["state_10.pt", "state_9.pt"]
    folder.save_state(11, {"step": 11}, meanwhile=True)
    folder.save_state(12, {"step": 12})
    assert names(tmp_path, "*state_*") == ["state_11.pt", "state_12.pt"]


def test_a_state_that_a_thread_cannot_write_is_told_and_the_next_one_is_a_new_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)
    folder.save_state(1, {"step": 1})
    (tmp_path / "state_2.pt").mkdir()
    folder.save_state(2, {"step": 2}, meanwhile=True, needed=False)
    folder.settle()
    assert (
        f"{tmp_path}/state_2.pt could not be written (Is a directory): training goes on, and the "
        "next state is a new try; until then a run that ends resumes from state_1.pt"
    ) in caplog.text
    (tmp_path / "state_2.pt").rmdir()
    folder.save_state(3, {"step": 3}, meanwhile=True, needed=False)
    folder.settle()
    # Neither half files nor a state too few
    assert names(tmp_path, "*state_*") == ["state_1.pt", "state_3.pt"]


def test_a_state_with_which_a_run_ends_raises_its_error(tmp_path: Path) -> None:
    (tmp_path / "state_2.pt").mkdir()
    with pytest.raises(IsADirectoryError, match=r"state_2\.pt"):
        RunFolder(tmp_path).save_state(2, {"step": 2})


def test_an_error_of_the_code_that_writes_a_state_is_raised_by_the_next_one(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    folder.save_state(2, {"step": lambda: 2}, meanwhile=True, needed=False)
    with pytest.raises(AttributeError, match="pickle"):
        folder.save_state(3, {"step": 3}, meanwhile=True, needed=False)


def test_a_state_with_a_flipped_bit_is_skipped_and_the_checksum_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)
    for step in (8, 9):
        folder.save_state(step, {"step": step, "weight": torch.arange(1000)})
    state = tmp_path / "state_9.pt"
    whole = bytearray(state.read_bytes())
    whole[whole.index(torch.arange(1000).numpy().tobytes()) + 8] ^= 1
    state.write_bytes(whole)
    assert folder.newest_state()["step"] == 8
    assert (
        f"{state} cannot be read and is skipped: damaged: the checksum of its part" in caplog.text
    )


class OpenNoMore(RunFolder):
    """Lists the states; from then on this process can open no file."""

    def _state_paths(self) -> list[Path]:
        states = super()._state_paths()
        os.close(next_number := os.open(os.devnull, os.O_RDONLY))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_number, hard))
        return states


@contextmanager
def same_number_of_files() -> Iterator[None]:
    """Restore the number of files that this process may open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def refuse(path: Path, why: str) -> AbstractContextManager[object]:
    """Return a context in which a file cannot be read, though its content is whole."""
    if why == "Too many open files":
        return same_number_of_files()
    if why == "Permission denied":
        path.chmod(0)
        return unprivileged()
    path.unlink()
    # The first page of a process cannot be read, as a block of a disk that fails.
    path.symlink_to({"Input/output error": "/proc/self/mem", "Is a directory": "."}[why])
    return nullcontext()


@pytest.mark.parametrize(
    "why", ["Too many open files", "Permission denied", "Input/output error", "Is a directory"]
)
def test_no_older_state_is_taken_if_the_system_does_not_let_the_newest_be_read(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = OpenNoMore if why == "Too many open files" else RunFolder
    with shared_folder() as path:
        for step in (8, 9):
            RunFolder(path).save_state(step, {"step": step})
        with (
            refuse(path / "state_9.pt", why),
            pytest.raises(OSError, match=why) as raised,
        ):
            kind(path).newest_state()
    assert raised.value.filename == str(path / "state_9.pt")
    assert not caplog.text


def test_no_state_is_skipped_for_lack_of_memory(tmp_path: Path) -> None:
    for step in (8, 9):
        RunFolder(tmp_path).save_state(step, {"step": torch.ones(25_000_000)})

    def read() -> str:
        free_bytes = 20_000_000 + 1024 * int(
            re.search(r"VmSize:\s*(\d+)", Path("/proc/self/status").read_text())[1]
        )
        resource.setrlimit(resource.RLIMIT_AS, (free_bytes, free_bytes))
        taken = []  # also what the heap has kept of earlier tests
        with suppress(MemoryError):
            while True:
                taken.append(bytearray(8_000_000))
        try:
            return str(RunFolder(tmp_path).newest_state()["step"].shape)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"

    assert in_a_fork(read) == f"{tmp_path}/state_9.pt: Cannot allocate memory"


def in_a_fork(call: Callable[[], str]) -> str:
    """The text that a call returns in a process of its own."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.write(writer, call().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as said:
        text = said.read()
    os.waitpid(process, 0)
    return text


def test_a_folder_that_may_not_be_listed_is_not_taken_for_that_of_a_new_run() -> None:
    with shared_folder() as path:
        RunFolder(path).save_state(9, {"step": 9})
        path.chmod(0o311)
        with unprivileged():
            for begin in (RunFolder(path).newest_state, RunFolder(path).refuse_strangers):
                with pytest.raises(PermissionError):
                    begin()
        path.chmod(0o777)


def test_a_new_run_refuses_a_folder_with_the_epochs_of_another(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.refuse_strangers()
    folder.save_weights("epoch_7", TinyModel().state_dict())
    with pytest.raises(ValueError, match=r"epoch_7\.pt.*another --model_dir"):
        folder.refuse_strangers()


@pytest.mark.parametrize("name", ["final", "avg", "model"])
def test_a_new_run_refuses_a_folder_with_a_model_that_no_run_wrote(tmp_path, name):
    folder = RunFolder(tmp_path)
    folder.save_weights(name, TinyModel().state_dict())
    (tmp_path / "train.yaml").write_text("encoder: conformer\n")
    with pytest.raises(ValueError, match=rf"holds {name}\.pt of another model.*--model_dir"):
        folder.refuse_strangers()


def test_a_new_run_takes_a_folder_with_what_a_run_leaves_that_ended_before_its_first_state(
    tmp_path,
):
    folder = RunFolder(tmp_path)
    folder.save_weights("init", TinyModel().state_dict())
    (tmp_path / "train.yaml").write_text("encoder: conformer\n")
    (tmp_path / "final.pt").symlink_to("epoch_3.pt")  # whose weights were moved away
    folder.refuse_strangers()


def test_the_newest_epochs_the_best_epochs_and_the_target_of_final_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for epoch, loss in enumerate([5.0, 1.0, 4.0, math.nan, 2.0, 3.0, 6.0]):
        folder.save_epoch(epoch, TinyModel().state_dict(), {"loss_dict": {"loss": loss}})
    folder.finish(2)
    folder.keep(last=2, best=1)
    assert names(tmp_path, "epoch_*.pt") == ["epoch_1.pt", "epoch_2.pt", "epoch_5.pt", "epoch_6.pt"]
    assert names(tmp_path, "epoch_*.yaml") == [
        "epoch_1.yaml",
        "epoch_2.yaml",
        "epoch_5.yaml",
        "epoch_6.yaml",
    ]
    folder.keep(last=None, best=0)
    assert len(names(tmp_path, "epoch_*.pt")) == 4


def test_final_is_a_relative_link_that_survives_a_move_of_the_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for epoch in (0, 1):
        folder.save_epoch(epoch, TinyModel().state_dict(), {"loss_dict": {"loss": 1.0}})
        folder.finish(epoch)
    folder.path.rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "final.pt").resolve() == tmp_path / "moved" / "epoch_1.pt"


def test_the_yaml_of_an_epoch_has_the_measured_values(tmp_path: Path) -> None:
    RunFolder(tmp_path).save_epoch(
        3, TinyModel().state_dict(), {"step": 40, "lrs": [0.1], "loss_dict": {"loss": 1.5}}
    )
    record = yaml.safe_load((tmp_path / "epoch_3.yaml").read_text())
    assert record.pop("save_time")
    assert record == {
        "epoch": 3,
        "step": 40,
        "lrs": [0.1],
        "loss_dict": {"loss": 1.5},
        "tag": "epoch_3",
    }


def test_differences_name_the_path_of_every_change() -> None:
    before = {"a": {"b": 1, "c": [1]}, "d": 2, "gone": 3}
    now = {"a": {"b": 1, "c": [2]}, "d": 2, "new": {"x": 1}}
    assert config_differences(before, now) == [
        "a.c: [1] -> [2]",
        "gone: 3 -> None",
        "new: None -> {'x': 1}",
    ]
