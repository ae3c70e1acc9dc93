"""The processes that train together: ranks, their random numbers, exchanges between them, failures,
and signals that ask them to save and stop.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import logging
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage] # no __all__

from wenet_uio.base.crashes import AGAIN, StartAgainError

log = logging.getLogger(__name__)

MOST_WORKERS = 8
"""Most data workers of a rank with `--num_workers auto`; more would mostly be idle."""
LAUNCHER = "WENET_UIO_LAUNCHER"
"""Environment variable with the process id of `wenet_uio.bin.launch`."""
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class World:
    """The ranks that torchrun started, seen from this process.

    A process that plain python started is the only rank.
    """

    device: torch.device
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Number of this process on its machine."""
    local_size: int = 1
    """Processes on this machine."""

    @classmethod
    def from_environment(cls, device: str, environment: Mapping[str, str] = os.environ) -> World:
        """Read the environment variables of torchrun.

        Args:
            device: cpu, cuda, cuda:N (the GPU of local rank 0), or auto (cuda if there is a GPU).

        Raises:
            ValueError: an unknown device, or fewer GPUs than ranks on this machine.
        """
        local_rank = int(environment.get("LOCAL_RANK", 0))
        kind, _, first_gpu = device.partition(":")
        if device == "auto":
            kind = "cuda" if torch.cuda.is_available() else "cpu"
        has_wrong_number = first_gpu and not (kind == "cuda" and first_gpu.isdecimal())
        if kind not in ("cpu", "cuda") or has_wrong_number:
            raise ValueError(f"--device {device}: unknown; known: auto, cpu, cuda, cuda:N")

        gpu = local_rank + int(first_gpu or 0)
        if kind == "cuda" and torch.cuda.device_count() <= gpu:
            raise ValueError(
                f"--device {device}: local rank {local_rank} needs a GPU of its own, "
                f"{torch.cuda.device_count()} found; start fewer processes or use --device cpu"
            )

        return cls(
            device=torch.device(kind, gpu) if kind == "cuda" else torch.device(kind),
            rank=int(environment.get("RANK", 0)),
            size=int(environment.get("WORLD_SIZE", 1)),
            local_rank=local_rank,
            local_size=int(environment.get("LOCAL_WORLD_SIZE", 1)),
        )

    def join(self, backend: str | None, timeout: float) -> None:
        """Connect to the other ranks. `timeout` (seconds) limits this and every later exchange."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size == 1:
            return

        # DDP imports this module. If it is imported after the group is made, it keeps the group
        # alive until exit.
        importlib.import_module("torch._dynamo")
        backend = backend or ("nccl" if self.device.type == "cuda" else "gloo")
        if backend == "nccl" and self.device.type == "cpu":  # as in the recipes of WeNet
            log.info("dist_backend nccl is for GPUs; ranks on the CPU exchange by gloo")
            backend = "gloo"
        if backend == "nccl":  # hosts exchange numbers that an accelerator need not know
            backend = "cpu:gloo,cuda:nccl"

        # torchrun may host the store itself; otherwise rank 0 does.
        limit = timedelta(seconds=timeout)
        has_agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
        store = self._connect_store(
            "group", limit, is_master=self.rank == 0 and not has_agent_store
        )
        dist.init_process_group(
            backend, timeout=limit, store=store, rank=self.rank, world_size=self.size
        )

    def leave(self) -> None:
        """Disconnect from the other ranks at the end of the run.

        Gloo's threads release tensors a little after an exchange. If Python exits in between, the
        process aborts. Destroying the group ends these threads, provided that no DDP object still
        holds the group.
        """
        if self.size > 1:
            gc.collect()
            dist.destroy_process_group()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum `values` over the ranks, in place and on every rank."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the maximum over the ranks, element by element, in place and on every rank."""
        if self.size > 1:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks in the order of the ranks, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def add_up(self, *counts: Counter[Any]) -> list[Counter[Any]]:
        """Return the sum of each of the counts over the ranks, on every rank; without zeros."""
        counts_of_ranks = self.gather([dict(count) for count in counts])
        totals: list[Counter[Any]] = []
        for counts_of_one_kind in zip(*counts_of_ranks, strict=True):
            total: Counter[Any] = Counter()
            for count in counts_of_one_kind:
                total += Counter(count)
            totals.append(total)

        return totals

    def share_buffers(self, module: torch.nn.Module) -> None:
        """Copy the buffers of rank 0 (running means of batch norm) to every rank."""
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def notice_board(self, name: str) -> Store:
        """Connect once more to the ranks' key-value store, for messages outside of exchanges."""
        return self._connect_store(name, timedelta(seconds=30))

    def _connect_store(self, name: str, timeout: timedelta, is_master: bool = False) -> Store:
        """Connect to the store, with keys of this start only.

        The store of torchrun outlives a restart and still has the addresses of the dead ranks.
        """
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(host, port, is_master=is_master, wait_for_workers=False, timeout=timeout)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"wenet_uio/{attempt}/{name}", store)


def end_with_launcher(environment: Mapping[str, str] = os.environ) -> None:
    """Let the kernel kill this process when torchrun, its parent, is killed (on Linux; `prctl(2)`).

    A rank that is left alone would train on, without anybody who passes signals on or starts it
    again.
    """
    if sys.platform != "linux" or "TORCHELASTIC_RUN_ID" not in environment:
        return

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The kernel says nothing about a launcher that was killed before this call.
    if LAUNCHER in environment and not Path("/proc", environment[LAUNCHER]).exists():
        sys.exit("the launcher was killed")


@contextmanager
def report_failure_once(world: World) -> Iterator[None]:
    """Let only the first rank that fails in this block raise its error.

    Other failing ranks exit with status 1.

    A rank whose exchange fails because another rank is gone prints one line; the other rank has the
    reason. After a StartAgainError all ranks exit with AGAIN.
    """
    try:
        yield
    except Exception as error:
        if world.size == 1:
            raise
        if _is_exchange_failure(error):
            _end_after_other_rank(world, error)

        board = world.notice_board("failures")
        if isinstance(error, StartAgainError):
            board.set("again", "")
        if board.add("count", 1) > 1:
            sys.exit(AGAIN if isinstance(error, StartAgainError) else 1)

        raise


def _is_exchange_failure(error: Exception) -> bool:
    """Tell whether an exchange failed because another rank did not answer."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo" in str(error)


def _end_after_other_rank(world: World, error: Exception) -> NoReturn:
    """Exit with one line; the rank that failed first has the reason."""
    first_line = str(error).splitlines()[0]
    print(f"rank {world.rank} ends: another rank did not answer ({first_line})", file=sys.stderr)

    starts_again = False
    # The store is gone as well if the other rank hosted it
    with suppress(dist.DistError):
        starts_again = world.notice_board("failures").check(["again"])

    sys.exit(AGAIN if starts_again else 1)


def auto_workers(world: World) -> int:
    """Return the data workers of each rank for `--num_workers auto`.

    The number does not change the batches.

    With an accelerator: the cores of the rank minus one for the training process, at most
    MOST_WORKERS. A rank that trains on the CPU gets one worker, which reads far faster than a CPU
    trains.
    """
    if world.device.type == "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) // world.local_size
    return min(MOST_WORKERS, max(1, cores - 1))


def cpu_threads(
    world: World, num_workers: int = 0, environment: Mapping[str, str] = os.environ
) -> int | None:
    """Return torch's threads for a rank that trains on the CPU with `num_workers` data workers.

    Each data worker gets a core of its own if more than half of the cores remain for training.
    Otherwise training and data workers share the cores, because the data workers are mostly idle.

    Returns:
        None if the user has set OMP_NUM_THREADS. torchrun sets OMP_NUM_THREADS=1 for several
        processes on one machine, so that a 1 does not count as the user's choice there.
    """
    chosen = environment.get("OMP_NUM_THREADS")
    is_of_torchrun = chosen == "1" and world.local_size > 1
    if chosen is not None and not is_of_torchrun:
        return None
    cores = max(1, len(os.sched_getaffinity(0)) // world.local_size)
    return cores - num_workers if cores > 2 * num_workers else cores


def use_cpu_threads(
    world: World, num_workers: int = 0, environment: Mapping[str, str] = os.environ
) -> None:
    """Set the threads of torch to `cpu_threads` if this rank computes on the CPU."""
    threads = cpu_threads(world, num_workers, environment)
    if threads and world.device.type == "cpu":
        torch.set_num_threads(threads)


SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Job schedulers send one of them before they take a machine away."""


class StopRequest:
    """Remembers whether this process received one of SIGNALS."""

    asked = False
    signal_name = signal.SIGTERM.name
    """The signal that was received; that of the launcher if another rank received it."""

    def listen(self) -> None:
        """Let SIGNALS set `asked` from now on, instead of ending the process."""
        for number in SIGNALS:
            signal.signal(number, self._remember_signal)

    def ignore(self) -> None:
        """Ignore further SIGNALS.

        The run is complete, and a late signal would only change the exit status.
        """
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _remember_signal(self, number: int, _: Any) -> None:
        self.asked = True
        self.signal_name = signal.Signals(number).name


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Seed the generators from seed, step and rank.

    So dropout and chunk sizes of a step do not depend on the steps before, and states need no
    generator state.
    """
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    step_seed = int.from_bytes(digest, "little")
    random.seed(step_seed)
    torch.manual_seed(step_seed)
