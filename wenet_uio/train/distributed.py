"""The processes that train together: who they are, and what they tell one another."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from wenet_uio.cli import AGAIN, StartAgainError

MOST_WORKERS = 8
"""Of `auto`: batches are small then, and more would mostly wait."""


@dataclass(frozen=True)
class World:
    """This process among those that torchrun started; alone when started by plain python."""

    device: torch.device
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Place among the processes of this machine."""
    local_size: int = 1

    @classmethod
    def from_environment(cls, device: str, environment: Mapping[str, str] = os.environ) -> World:
        """Read what torchrun set; `device` is cpu, cuda, or auto (cuda where there is one).

        Raises:
            ValueError: no such device on this machine for this rank.
        """
        local_rank = int(environment.get("LOCAL_RANK", 0))
        kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"--device {device}: unknown; known: auto, cpu, cuda")
        if kind == "cuda" and torch.cuda.device_count() <= local_rank:
            raise ValueError(
                f"--device {device}: local rank {local_rank} needs a GPU of its own, "
                f"{torch.cuda.device_count()} found; start fewer processes or use --device cpu"
            )
        return cls(
            device=torch.device(kind, local_rank) if kind == "cuda" else torch.device(kind),
            rank=int(environment.get("RANK", 0)),
            size=int(environment.get("WORLD_SIZE", 1)),
            local_rank=local_rank,
            local_size=int(environment.get("LOCAL_WORLD_SIZE", 1)),
        )

    def join(self, backend: str | None, timeout: float) -> None:
        """Meet the other ranks, waiting `timeout` seconds for them; the same limit holds for every exchange."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size > 1:
            # DDP imports this; imported after the group is made, it keeps the group alive to the end of the process.
            importlib.import_module("torch._dynamo")
            backend = backend or ("nccl" if self.device.type == "cuda" else "gloo")
            limit = timedelta(seconds=timeout)
            hosts_store = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
            store = self._store("group", limit, is_master=hosts_store)
            dist.init_process_group(backend, timeout=limit, store=store, rank=self.rank, world_size=self.size)

    def leave(self) -> None:
        """Part from the other ranks, at the end of what all of them did.

        The threads of gloo let go of tensors a little after an exchange; when Python ends meanwhile, the process
        aborts. They end here, with the group, if nothing of DDP holds it any more.
        """
        if self.size > 1:
            gc.collect()
            dist.destroy_process_group()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of the ranks' `values`, in place and on every rank."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """Each of `values` as the rank has it where it is largest, in place and on every rank."""
        if self.size > 1:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value`, in the order of the ranks, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def share_buffers(self, module: torch.nn.Module) -> None:
        """Give every rank rank 0's buffers (running means of batch norm)."""
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def notice_board(self, name: str) -> dist.Store:
        """A connection of its own to the store that the ranks met at, for words outside of the exchanges."""
        return self._store(name, timedelta(seconds=30))

    def _store(self, name: str, timeout: timedelta, is_master: bool = False) -> dist.Store:
        """Keys of an attempt of their own: torchrun's store outlives a restart, with the addresses of dead ranks."""
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(host, port, is_master=is_master, wait_for_workers=False, timeout=timeout)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return dist.PrefixStore(f"wenet_uio/{attempt}/{name}", store)


@contextmanager
def said_once(world: World) -> Iterator[None]:
    """Of the ranks that fail in this block, only the first lets its error be seen; the others end with status 1.

    A rank whose exchange fails because another rank is gone says so in one line: that other rank has the reason. Where
    it is to be started again, all ranks end with that status.
    """
    try:
        yield
    except Exception as error:
        if world.size > 1:
            if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
                first_line = str(error).splitlines()[0]
                print(f"rank {world.rank} ends: another rank did not answer ({first_line})", file=sys.stderr)
                again = False
                with suppress(dist.DistError):  # where the other rank had the store
                    again = world.notice_board("failures").check(["again"])
                sys.exit(AGAIN if again else 1)
            board = world.notice_board("failures")
            if isinstance(error, StartAgainError):
                board.set("again", "")
            if board.add("count", 1) > 1:
                sys.exit(AGAIN if isinstance(error, StartAgainError) else 1)
        raise


def auto_workers(world: World) -> int:
    """Processes of each rank that read data, for `--num_workers auto`: batches do not depend on it.

    Beside an accelerator all cores of the rank but one, which drives it, up to MOST_WORKERS. A rank that computes on
    the CPU has one: it reads thousands of audio seconds a second, and some tens are trained.
    """
    if world.device.type == "cpu":
        return 1
    return min(MOST_WORKERS, max(1, len(os.sched_getaffinity(0)) // world.local_size - 1))


def cpu_threads(world: World, num_workers: int = 0, environment: Mapping[str, str] = os.environ) -> int | None:
    """Threads of torch for a rank that computes on the CPU beside `num_workers` processes that read data.

    Each of these gets a core where more than half of the cores are left to compute. Elsewhere they share: training on
    a CPU is so much slower than reading that they mostly wait.

    None leaves the user's OMP_NUM_THREADS alone. torchrun gives every one of several processes OMP_NUM_THREADS=1,
    whatever the machine has; that 1 is not the user's.
    """
    chosen = environment.get("OMP_NUM_THREADS")
    if chosen is not None and not (chosen == "1" and world.local_size > 1):
        return None
    cores = max(1, len(os.sched_getaffinity(0)) // world.local_size)
    return cores - num_workers if cores > 2 * num_workers else cores


def use_cpu_threads(world: World, num_workers: int = 0, environment: Mapping[str, str] = os.environ) -> None:
    """Let torch have the threads that `cpu_threads` names, where this rank computes on the CPU."""
    threads = cpu_threads(world, num_workers, environment)
    if threads and world.device.type == "cpu":
        torch.set_num_threads(threads)
