"""The largest batches that train: how many utterances of a shape memory suffices for, found by training on them.

CPU   each trial is a process of its own, forked, whose memory is limited: an overshoot ends that process alone
CUDA  trials follow one another in this process; the allocator is given its limit and says what it took
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from wenet_uio.config import Config
from wenet_uio.dataset.plan.worst_shapes import Shape
from wenet_uio.dataset.types import Batch
from wenet_uio.models import build_model
from wenet_uio.train.distributed import World
from wenet_uio.train.engine_ddp import DdpEngine
from wenet_uio.train.memory import SizeLimit, TooLarge, is_out_of_memory

STEPS = 2
"""Optimizer steps of a trial: the first makes the optimizer's state, the second runs beside it."""
PRECISION = 0.05

Trial = Callable[[Shape, int], int | None]
"""(shape, utterances) -> peak of memory in bytes; None where it did not suffice."""


@dataclass(frozen=True)
class Found:
    """The largest batch of a shape."""

    utterances: int
    peak: int
    """Bytes."""


def largest_batch(trial: Trial, shape: Shape, start: int) -> Found | None:
    """Double from `start` utterances, then bisect to 5 %; never beyond the shape's. None: not one fits."""
    best, too_many, size = None, shape.utterances + 1, max(1, min(start, shape.utterances))
    while True:
        peak = trial(shape, size)
        if peak is None:
            too_many = size
        else:
            best = Found(size, peak)
        low = best.utterances if best else 0
        if too_many - low <= max(1, PRECISION * low):
            return best
        unknown_above = too_many > shape.utterances and best is not None
        size = min(2 * size, shape.utterances) if unknown_above else (low + too_many) // 2


class Unsplit(SizeLimit):
    """A batch that does not fit fails."""

    def note(self, batch: Batch, number: int, said: str) -> TooLarge:
        raise MemoryError(self.refusal(batch, number, said))


def train_on(config: Config, world: World, shape: Shape, utterances: int, *, with_ddp: bool) -> None:
    """A few steps on a batch without padding; with the buckets of gradients that DDP keeps, where asked for.

    Raises:
        MemoryError: it does not fit.
    """
    if with_ddp and not dist.is_initialized():
        backend = "nccl" if world.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    engine = DdpEngine(build_model(config), config, world, seed=1)
    engine.size_limit = Unsplit(config.dataset_conf)
    engine.connect()
    batch = batch_of(shape, utterances, config.input_dim, config.vocab_size)
    for number in range(1, STEPS + 1):
        engine.step([batch], number, {})


def batch_of(shape: Shape, utterances: int, feature_dim: int, vocab_size: int) -> Batch:
    """Noise and random labels."""
    return Batch(
        keys=tuple(str(number) for number in range(utterances)),
        feats=torch.randn(utterances, shape.frames, feature_dim),
        feats_lengths=torch.full((utterances,), shape.frames),
        target=torch.randint(1, vocab_size, (utterances, shape.tokens)),
        target_lengths=torch.full((utterances,), shape.tokens),
    )


def limited_process(work: Callable[[], None], memory: int) -> int | None:
    """Do `work` in a process of at most `memory` bytes; the most that it had resident, None where it wanted more.

    Linux only: what a process may still allocate is set so that it cannot come to have more resident.

    Raises:
        RuntimeError: it failed for another reason.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_limited, args=(work, memory, sender))
    process.start()
    sender.close()
    try:
        peak, failure = receiver.recv()
    except EOFError:  # ended by a signal: libraries abort where C++ cannot raise for want of memory
        peak, failure = None, ""
    process.join()
    if failure:
        raise RuntimeError(failure)
    return peak if peak is not None and peak <= memory else None


def _limited(work: Callable[[], None], memory: int, sender: Connection) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # an abort's last words
    more = memory - _status("VmRSS")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    peak, failure = None, ""
    try:
        if more <= 0:
            raise MemoryError
        allowed = _status("VmData") + more
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        work()
        peak = _status("VmHWM")
    except Exception as error:
        if not is_out_of_memory(error):
            failure = f"{type(error).__name__}: {error}"
    sender.send((peak, failure))
    os._exit(0)  # no clean-up of what belongs to the parent


def _status(name: str) -> int:
    """A line of this process's status, in bytes."""
    return 1024 * int(re.search(rf"^{name}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)[1])


def cpu_trial(config: Config, memory: int, *, with_ddp: bool) -> Trial:
    """Trials in processes of `memory` bytes each; nothing may be computed in this one before."""
    world = World(torch.device("cpu"))

    def trial(shape: Shape, utterances: int) -> int | None:
        return limited_process(lambda: train_on(config, world, shape, utterances, with_ddp=with_ddp), memory)

    return trial


def cuda_trial(config: Config, memory: int, *, with_ddp: bool) -> Trial:
    """Trials on the first GPU, of whose memory `memory` bytes may be taken."""
    world = World(torch.device("cuda", 0))
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory / torch.cuda.mem_get_info(world.device)[1]))

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
