"""Find the largest batch of a shape that fits in memory, by training on batches of that shape.

CPU    each trial runs in a forked process with limited memory; running out of memory ends that process only
CUDA   trials run one after another in this process; the allocator has a limit and reports its peak
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage] # torch has no __all__ there

from wenet_uio.config import Config
from wenet_uio.dataset.plan.worst_shapes import Shape
from wenet_uio.dataset.types import Batch
from wenet_uio.models.build import build_trainable
from wenet_uio.train.distributed import World
from wenet_uio.train.engine_ddp import DdpEngine
from wenet_uio.train.memory import SizeLimit, TooLarge, is_out_of_memory

STEPS = 2
"""Optimizer steps of a trial. The first step creates the optimizer's state, which the second step
has in memory."""
PRECISION = 0.05
"""Bisection ends when the batch found is at most this share below one that does not fit."""

Trial = Callable[[Shape, int], int | None]
"""(shape, utterances) -> peak memory in bytes; None if the batch does not fit."""


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch of a shape."""

    utterances: int
    peak: int
    """Peak memory in bytes."""


def largest_batch(trial: Trial, shape: Shape, start: int) -> LargestBatch | None:
    """Double the batch from `start` utterances until it does not fit, then bisect to 5 %.

    The batch never has more utterances than the shape. None if not even one utterance fits.
    """
    best: LargestBatch | None = None
    too_many = shape.utterances + 1
    size = max(1, min(start, shape.utterances))

    while True:
        peak = trial(shape, size)
        if peak is None:
            too_many = size
        else:
            best = LargestBatch(size, peak)

        low = best.utterances if best else 0
        if too_many - low <= max(1, PRECISION * low):
            return best

        nothing_failed = too_many > shape.utterances and best is not None
        size = min(2 * size, shape.utterances) if nothing_failed else (low + too_many) // 2


class Unsplit(SizeLimit):
    """Fails on a batch that does not fit, instead of splitting it."""

    def note(self, batches: Sequence[Batch], number: int, reason: str) -> TooLarge:
        """Raise a MemoryError."""
        raise MemoryError(self.refusal(batches, number, reason))


def train_on(
    config: Config, world: World, shape: Shape, utterances: int, *, with_ddp: bool
) -> None:
    """Train STEPS steps on a batch without padding.

    `with_ddp` also allocates DDP's gradient buckets.

    Raises:
        MemoryError: the batch does not fit.
    """
    if with_ddp and not dist.is_initialized():
        backend = "nccl" if world.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)

    engine = DdpEngine(build_trainable(config), config, world, seed=1)
    engine.size_limit = Unsplit(config.dataset_conf)
    engine.connect()
    assert config.input_dim is not None, "read_config sets both sizes"
    assert config.vocab_size is not None
    batch = batch_of(shape, utterances, config.feature_dim, config.vocab_size)
    if config.dataset_conf.views.number == 2:
        batch.other_feats = torch.randn_like(batch.feats)

    for number in range(1, STEPS + 1):
        engine.step([batch], number, {})


def batch_of(shape: Shape, utterances: int, feature_dim: int, vocab_size: int) -> Batch:
    """Return a batch of noise with random labels."""
    return Batch(
        keys=tuple(str(number) for number in range(utterances)),
        feats=torch.randn(utterances, shape.frames, feature_dim),
        feats_lengths=torch.full((utterances,), shape.frames),
        target=torch.randint(1, vocab_size, (utterances, shape.tokens)),
        target_lengths=torch.full((utterances,), shape.tokens),
        texts=("",) * utterances,
        extra=({},) * utterances,
    )


def limited_process(work: Callable[[], None], memory: int) -> int | None:
    """Run `work` in a forked process that may take at most `memory` bytes. Linux only.

    The process has a limit on its data, which bounds its resident memory.

    Returns:
        Peak resident memory in bytes; None if `work` needs more than `memory`.

    Raises:
        RuntimeError: `work` fails for another reason.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_limited, args=(work, memory, sender)
    )
    process.start()
    sender.close()

    try:
        peak, failure = receiver.recv()
    except EOFError:  # killed by a signal: some C++ libraries abort when an allocation fails
        peak, failure = None, ""

    process.join()
    if failure:
        raise RuntimeError(failure)

    return peak if peak is not None and peak <= memory else None


def _limited(work: Callable[[], None], memory: int, sender: Connection) -> None:
    """Run `work` in this process, which is forked; send its peak memory and its error message."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides what an abort prints
    free_bytes = memory - _status("VmRSS")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    peak, failure = None, ""

    try:
        if free_bytes <= 0:
            raise MemoryError

        allowed = _status("VmData") + free_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        work()
        peak = _status("VmHWM")
    except Exception as error:
        if not is_out_of_memory(error):
            failure = f"{type(error).__name__}: {error}"

    sender.send((peak, failure))
    os._exit(0)  # skips clean-up handlers, which belong to the parent


def _status(name: str) -> int:
    """Return a size in /proc/self/status, in bytes."""
    line = re.search(rf"^{name}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    assert line is not None, "Linux has this line"
    return 1024 * int(line[1])


def cpu_trial(config: Config, memory: int, *, with_ddp: bool) -> Trial:
    """Return trials in forked processes of at most `memory` bytes each.

    This process must not have run torch operations before: their threads do not survive a fork.
    """
    world = World(torch.device("cpu"))

    def trial(shape: Shape, utterances: int) -> int | None:
        return limited_process(
            lambda: train_on(config, world, shape, utterances, with_ddp=with_ddp), memory
        )

    return trial


def cuda_trial(config: Config, memory: int, *, with_ddp: bool) -> Trial:
    """Return trials on the first GPU, with at most `memory` bytes of its memory."""
    world = World(torch.device("cuda", 0))
    _, total_memory = torch.cuda.mem_get_info(world.device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory / total_memory))

    def trial(shape: Shape, utterances: int) -> int | None:
        torch.cuda.reset_peak_memory_stats(world.device)
        peak = None
        try:
            train_on(config, world, shape, utterances, with_ddp=with_ddp)
            peak = torch.cuda.max_memory_reserved(world.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise

        gc.collect()
        torch.cuda.empty_cache()
        return peak

    return trial
