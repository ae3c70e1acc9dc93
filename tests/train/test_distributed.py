from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from wenet_uio.train.distributed import (
    World,
    auto_workers,
    cpu_threads,
    end_with_launcher,
    seed_everything,
)


def test_plain_python_is_a_world_of_one_rank() -> None:
    world = World.from_environment("cpu", {})
    assert (world.rank, world.size, world.device) == (0, 1, torch.device("cpu"))
    assert (world.local_rank, world.local_size) == (0, 1)
    values = torch.tensor([1.0, 2.0])
    assert world.sum(values).tolist() == [1.0, 2.0]
    assert world.gather("mine") == ["mine"]


def test_workers_are_chosen_by_device_cores_and_ranks(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert auto_workers(World(torch.device("cpu"))) == 1
    expected = {1: 8, 2: 7, 4: 3, 16: 1, 32: 1}
    for local_size, workers in expected.items():
        assert auto_workers(World(torch.device("cuda", 0), local_size=local_size)) == workers


def test_the_world_is_read_from_the_variables_of_torchrun() -> None:
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    world = World.from_environment("cpu", environment)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (5, 8, 1, 4)


def test_a_missing_device_is_refused() -> None:
    with pytest.raises(ValueError, match="--device tpu: unknown; known: auto, cpu, cuda"):
        World.from_environment("tpu", {})
    for device in ("cpu:0", "cuda:x", "cuda:-1", "auto:0", ""):
        with pytest.raises(ValueError, match=f"--device {device}: unknown"):
            World.from_environment(device, {})
    with pytest.raises(ValueError, match=r"local rank 99 needs a GPU of its own, \d+ found"):
        World.from_environment("cuda", {"LOCAL_RANK": "99"})


@pytest.mark.parametrize(
    ("local_size", "omp_num_threads", "expected"),
    [
        pytest.param(1, None, "all", id="alone: all cores"),
        pytest.param(2, "1", "half", id="torchrun's own 1 is replaced"),
        pytest.param(1, "1", None, id="the user's 1 stays"),
        pytest.param(2, "3", None, id="the user's 3 stays"),
        pytest.param(10_000, "1", "one", id="never below one"),
    ],
)
def test_ranks_on_a_cpu_share_its_cores(
    local_size: int, omp_num_threads: str | None, expected: str | None
) -> None:
    environment = {} if omp_num_threads is None else {"OMP_NUM_THREADS": omp_num_threads}
    cores = len(os.sched_getaffinity(0))
    threads = {"all": cores, "half": max(1, cores // 2), "one": 1, None: None}[expected]
    world = World(torch.device("cpu"), local_size=local_size)
    assert cpu_threads(world, 0, environment) == threads
    if threads is not None:
        assert cpu_threads(world, 1, environment) == (threads - 1 if threads > 2 else threads)


def rank_of(launcher_ends: bool) -> int:
    """Fork a launcher that forks a rank, and kill the launcher; the process id of the rank."""
    read, write = os.pipe()
    launcher = os.fork()
    if not launcher:
        if not os.fork():
            end_with_launcher({"TORCHELASTIC_RUN_ID": "run"} if launcher_ends else {})
            os.write(write, f"{os.getpid()}".encode())
            time.sleep(20)
            os._exit(0)
        time.sleep(20)
        os._exit(0)
    rank = int(os.read(read, 20))
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    return rank


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="a feature of Linux")
def test_a_rank_ends_when_torchrun_is_killed_and_other_processes_go_on() -> None:
    rank, other = rank_of(launcher_ends=True), rank_of(launcher_ends=False)
    give_up = time.monotonic() + 10
    while is_running(rank) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert (is_running(rank), is_running(other)) == (False, True)
    os.kill(other, signal.SIGKILL)


def test_a_rank_whose_launcher_is_dead_already_does_not_start() -> None:
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    if not (child := os.fork()):
        try:
            end_with_launcher({"TORCHELASTIC_RUN_ID": "run", "WENET_UIO_LAUNCHER": str(gone)})
        except SystemExit:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_random_numbers_of_a_step_depend_only_on_seed_step_and_rank() -> None:
    def draw(*arguments: int) -> torch.Tensor:
        seed_everything(*arguments)
        return torch.rand(3)

    assert torch.equal(draw(1, 2, 3), draw(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not torch.equal(draw(1, 2, 3), draw(*other))
