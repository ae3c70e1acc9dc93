"""Ranks under the launcher: stopping, failures, stalls, restarts, and several machines."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.train.training_corpus import write_corpus
from wenet_uio.train.checkpoint import RunFolder

ROOT = Path(__file__).parents[2]
LAUNCH = ["-m", "wenet_uio.bin.launch"]
ON_TWO = ["--standalone", "--nproc_per_node", "2"]
TRAIN = "--config train.yaml --train_data train.list --cv_data cv.list --model_dir exp --device cpu --num_workers 1"
DISTURBED = """
import os, signal, sys, time
from wenet_uio.bin import train
from wenet_uio.base.crashes import StartAgainError
from wenet_uio.base.cli import run
from wenet_uio.train.engine import Engine

launch, rank = Engine.launch, int(os.environ["RANK"])
steps = 0

def disturbed(engine, *arguments):
    global steps
    steps += 1
    if rank == 1 and steps == 4:
        disturb()
    return launch(engine, *arguments)

Engine.launch = disturbed
"""


def start(folder: Path, *command: str, is_tree: bool = False) -> subprocess.Popen[str]:
    """Start the launcher; with `is_tree` the ranks are its children, as in use, and not forked from
    a server.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    python, environment = (
        (sys.executable, environment)
        if is_tree
        else (preloaded.python(), preloaded.on_path(environment))
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [python, *LAUNCH, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **pipes,
    )


def launch(folder: Path, *command: str) -> tuple[int, str]:
    """Exit status and standard error."""
    process = start(folder, *command)
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def train(folder: Path, *options: str) -> tuple[int, str]:
    return launch(folder, *ON_TWO, "-m", "wenet_uio.bin.train", *TRAIN.split(), *options)


def disturbed(
    folder: Path, disturb: str, *options: str, launcher: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Train with rank 1 doing `disturb`, the body of a function, in its fourth step."""
    return launch(
        folder, *ON_TWO, *launcher, write_disturbed(folder, disturb), *TRAIN.split(), *options
    )


def write_disturbed(folder: Path, disturb: str) -> str:
    (folder / "disturbed.py").write_text(
        f"{DISTURBED}\ndef disturb():\n    {disturb}\n\nrun(train.main)\n"
    )
    return "disturbed.py"


def wait_for(there: Callable[[], object], process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + 200
    while not there() and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.05)
    assert there() or process.poll() is not None, "nothing within 200 s"
    assert process.poll() is None, process.communicate(timeout=60)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path)


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        pytest.param(signal.SIGTERM, False, id="SIGTERM to the launcher"),
        pytest.param(signal.SIGUSR1, False, id="SIGUSR1 to the launcher", marks=pytest.mark.all),
        pytest.param(
            signal.SIGTERM, True, id="SIGTERM to every process of the job", marks=pytest.mark.all
        ),
        pytest.param(signal.SIGUSR1, True, id="SIGUSR1 to every process of the job"),
    ],
)
def test_sigterm_and_sigusr1_save_and_exit_with_0_and_the_next_start_resumes(
    corpus: Path, number: signal.Signals, whole_group: bool
) -> None:
    (corpus / "train.yaml").write_text(
        (corpus / "train.yaml").read_text().replace("max_epoch: 2", "max_epoch: 10000")
    )
    process = start(corpus, *ON_TWO, "-m", "wenet_uio.bin.train", *TRAIN.split())
    wait_for((corpus / "exp/epoch_0.pt").exists, process)
    if whole_group:
        job = commands_in(corpus)
        assert len(job) >= 5  # the launcher, two ranks and their workers
        for pid in job:
            os.kill(pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    (step,) = re.findall(rf"{number.name} received: state saved after step (\d+)", said)
    assert torch.load(corpus / f"exp/state_{step}.pt")["progress"]["step"] == int(step)
    assert "Traceback" not in said
    if not whole_group:
        status, said = train(corpus, "--override_config", f"max_steps={int(step) + 2}")
        assert status == 0, said
        assert f"resuming after step {step}," in said


def test_a_killed_launcher_takes_its_rank_with_it_and_meanwhile_the_folder_is_locked(
    corpus: Path,
) -> None:
    (corpus / "train.yaml").write_text(
        (corpus / "train.yaml").read_text().replace("max_epoch: 2", "max_epoch: 10000")
    )
    on_one = ["--standalone", "--nproc_per_node", "1"]  # each rank imports torch, as it does in use
    process = start(corpus, *on_one, "-m", "wenet_uio.bin.train", *TRAIN.split(), is_tree=True)
    wait_for((corpus / "exp/epoch_0.pt").exists, process)
    (rank,) = children(process.pid)
    with pytest.raises(ValueError, match=rf"exp: process {rank} of .*, since .* trains in this"):
        RunFolder(corpus / "exp").hold()
    processes = [rank, *children(rank)]
    assert len(processes) >= 2
    process.kill()
    process.communicate(timeout=60)  # ends when no process is left that could write
    assert not any(map(is_running, processes))
    RunFolder(corpus / "exp").hold()


def children(process: int) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(process)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def commands_in(folder: Path) -> list[int]:
    """Commands that were forked from the server and their processes, in the working directory
    `folder`.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if (process / "cwd").readlink() == folder and b"preload_server" in (
                process / "cmdline"
            ).read_bytes():
                found.append(int(process.name))
    return found


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_failure_is_reported_once(corpus: Path) -> None:
    options = ["--train_data", "absent.list"]
    status, said = train(corpus, *options)
    assert status == 1
    assert [line for line in said.splitlines() if "OMP_NUM_THREADS" not in line] == [
        "error: absent.list: no such data list; make_raw_list.py and make_shard_list.py make them"
    ]


def test_a_failing_rank_ends_the_job_with_one_traceback(corpus: Path) -> None:
    status, said = disturbed(corpus, "raise RuntimeError('this is why')")
    assert status == 1
    assert said.count("Traceback") == 1
    assert said.count("RuntimeError: this is why") == 1


def test_the_signal_that_killed_a_rank_is_named(corpus: Path) -> None:
    status, said = disturbed(corpus, "os.kill(os.getpid(), signal.SIGKILL)")
    assert status == 1
    assert "error: rank 1 was killed by SIGKILL" in said
    assert "Traceback" not in said


def test_a_job_whose_rank_dies_is_started_again_from_its_newest_state(corpus: Path) -> None:
    die = "os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.kill(os.getpid(), signal.SIGKILL)"
    status, said = disturbed(corpus, die, launcher=("--max_restarts", "1"))
    assert status == 0, said
    assert "resuming after step 3, in epoch 1" in said
    assert yaml.safe_load((corpus / "exp/epoch_1.yaml").read_text())["step"] == 6


@pytest.mark.all
def test_ranks_that_exit_with_75_are_started_again(corpus: Path) -> None:
    once = "if not os.path.exists('tried'): open('tried', 'w').close(); raise StartAgainError('this is why')"
    status, said = disturbed(corpus, once)
    assert status == 0, said
    assert (
        said.count("error: this is why\n")
        == said.count("starting again from the newest state\n")
        == 1
    )
    assert "resuming after step 3, in epoch 1" in said


def test_the_watchdog_names_the_rank_that_stalls_with_its_stack(corpus: Path) -> None:
    stall = "for _ in range(600): os.path.exists('named') or time.sleep(0.1)"
    process = start(
        corpus, *ON_TWO, write_disturbed(corpus, stall), *TRAIN.split(), "--watchdog", "2"
    )
    assert process.stderr
    said = ""
    for line in process.stderr:
        said += line
        if stall in line:
            (corpus / "named").touch()
    assert process.wait(60) == 0, said
    assert "no progress for 2 s" in said
    assert f"in disturb\n    {stall}" in said


def train_on_machines(*folders: Path, model_dir: str) -> tuple[list[int], str]:
    """Exit status of a launcher in each folder, with one rank; standard error of all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meet = [
        "--nnodes",
        "2",
        "--nproc_per_node",
        "1",
        "--rdzv_backend",
        "c10d",
        "--rdzv_endpoint",
        f"localhost:{port}",
    ]
    nodes = [
        start(folder, *meet, "--rdzv_id", "exp", "--node_rank", str(rank), "--rdzv_conf", f"is_host={int(rank == 0)}",
              "-m", "wenet_uio.bin.train", *TRAIN.split(), "--model_dir", model_dir)
        for rank, folder in enumerate(folders)
    ]  # fmt: skip
    said = "".join(node.communicate(timeout=300)[1] for node in nodes)
    return [node.returncode for node in nodes], said


@pytest.mark.all
def test_two_launchers_on_one_machine_train_together(corpus: Path) -> None:
    statuses, said = train_on_machines(corpus, corpus, model_dir="exp")
    assert statuses == [0, 0], said
    assert yaml.safe_load((corpus / "exp/epoch_1.yaml").read_text())["step"] == 6  # 12 on one rank


@pytest.mark.all
def test_machines_with_other_audio_are_refused_and_train_when_it_came_back(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        write_corpus(folder, max_epoch=1)
    lost = folders[1] / "train3.wav"
    lost.rename(tmp_path / "away")
    statuses, said = train_on_machines(*folders, model_dir=str(tmp_path / "exp"))
    assert statuses == [1, 1], said
    assert "train.list: rank 1 has an index of other utterances than rank 0" in said

    (tmp_path / "away").rename(lost)
    statuses, said = train_on_machines(*folders, model_dir=str(tmp_path / "exp"))
    assert statuses == [0, 0], said
    assert "the list is indexed again" in said
