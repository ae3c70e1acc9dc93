"""Find the largest batch of a shape that fits in memory, by training on batches of that shape; and
the batch size of each bucket.

CPU    each trial runs in a forked process with limited memory; running out of memory ends that process only
CUDA   trials run one after another in this process; the allocator has a limit and reports its peak
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage] # torch has no __all__ there
from tqdm import tqdm

from wenet_uio.base.messages import hides_bar, note
from wenet_uio.config import Config
from wenet_uio.dataset.plan.duration_bins import Shape
from wenet_uio.dataset.plan.policies import ANY_TOKENS, DurationBucketPolicy
from wenet_uio.dataset.types import Batch
from wenet_uio.models.build import build_trainable
from wenet_uio.train.distributed import World
from wenet_uio.train.engines import DdpEngine
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

        size = (low + too_many) // 2
        nothing_failed = too_many > shape.utterances and best is not None
        if nothing_failed:
            size = min(2 * low, shape.utterances)


class Unsplit(SizeLimit):
    """Fails on a batch that does not fit, instead of splitting it."""

    def note(self, batches: Sequence[Batch], number: int, reason: str) -> TooLarge:
        """Raise a MemoryError."""
        raise MemoryError(self.refusal(batches, number, reason))


def train_on_noise(
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
    batch = noise_batch(shape, utterances, config.feature_dim, config.vocab_size)
    if config.dataset_conf.views.number == 2:
        batch.other_feats = torch.randn_like(batch.feats)

    for number in range(1, STEPS + 1):
        engine.step([batch], number, {})


def noise_batch(shape: Shape, utterances: int, feature_dim: int, vocab_size: int) -> Batch:
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
        target=_run_limited, args=(work, memory, sender)
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


def _run_limited(work: Callable[[], None], memory: int, sender: Connection) -> None:
    """Run `work` in this process, which is forked; send its peak memory and its error message."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides what an abort prints
    free_bytes = memory - _process_bytes("VmRSS")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    peak, failure = None, ""

    try:
        if free_bytes <= 0:
            raise MemoryError

        allowed = _process_bytes("VmData") + free_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        work()
        peak = _process_bytes("VmHWM")
    except Exception as error:
        if not is_out_of_memory(error):
            failure = f"{type(error).__name__}: {error}"

    sender.send((peak, failure))
    os._exit(0)  # skips clean-up handlers, which belong to the parent


def _process_bytes(name: str) -> int:
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
            lambda: train_on_noise(config, world, shape, utterances, with_ddp=with_ddp), memory
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
            train_on_noise(config, world, shape, utterances, with_ddp=with_ddp)
            peak = torch.cuda.max_memory_reserved(world.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise

        gc.collect()
        torch.cuda.empty_cache()
        return peak

    return trial


def largest_batches(
    policy: DurationBucketPolicy, shapes: Sequence[Shape | None], trial: Trial, memory: int
) -> list[LargestBatch | None]:
    """Find and print the largest batch of each bucket, from the longest bucket to the shortest.

    Args:
        shapes: of each bucket; None for a bucket without utterances, whose result is None.
        memory: bytes that `trial` may take, for the error message.

    Raises:
        ValueError: a bucket does not train with a single utterance.
    """
    batches: list[LargestBatch | None] = [None] * len(shapes)
    start = 1
    titles = [f"up to {end / 1000:g} s" for end, _ in policy.ends] + ["longer"]

    for bucket in tqdm(
        reversed(range(len(shapes))), total=len(shapes), unit="bucket", disable=hides_bar()
    ):
        shape = shapes[bucket]
        if shape is None:
            continue

        largest = largest_batch(trial, shape, start)
        if largest is None:
            raise ValueError(
                f"{titles[bucket]}: not one utterance of {shape.frames} frames and {shape.tokens} "
                f"tokens trains in {memory / 1e9:.2f} GB; lower filter_conf.max_length, or use a "
                "smaller model"
            )

        batches[bucket] = largest
        start = largest.utterances  # a shorter bucket takes at least as many
        with tqdm.external_write_mode(sys.stderr):
            note(
                f"{titles[bucket]}: {start} utterances of {shape.frames} frames and {shape.tokens} "
                f"tokens, {largest.peak / 1e9:.2f} GB"
            )

    return batches


def leave_out_unfit(
    policy: DurationBucketPolicy, shapes: Sequence[Shape | None]
) -> list[Shape | None]:
    """Return the shapes of the buckets. What fits no bucket of (seconds, tokens) is told, because
    training leaves it out: `bucket_batch_size` has no number for it.

    Raises:
        ValueError: no utterance fits a bucket.
    """
    count = len(policy.ends)
    unfit = shapes[count] if policy.in_two_dimensions and len(shapes) > count else None
    if unfit is None:
        return list(shapes)

    note = (
        f"{unfit.utterances} utterances fit no bin, and training leaves them out; they have up to "
        f"{unfit.frames} frames and {unfit.tokens} tokens"
    )
    if not any(shapes[:count]):
        raise ValueError(f"{note}; give bins that hold them: tools/estimate_duration_bins.py")

    tqdm.write(f"{note}; add a bin to keep them", file=sys.stderr)
    return list(shapes[:count])


def batch_conf_yaml(
    policy: DurationBucketPolicy,
    shapes: Sequence[Shape | None],
    batches: Sequence[LargestBatch | None],
    views: int = 1,
) -> str:
    """Format the batch_conf with these batches as yaml.

    A bucket without utterances gets the batch size of the next longer bucket.

    With two `views` of each utterance, batch sizes count the views.
    """
    # Seconds, or seconds and tokens for a policy in two dimensions.
    bins: list[float | list[float]] = []
    for end, tokens in policy.ends:
        bins.append(end / 1000 if tokens == ANY_TOKENS else [end / 1000, tokens])

    batch_conf = {
        "batch_type": "bucket",
        "bucket_duration_bins": bins,
        "bucket_batch_size": [views * size for size in _bucket_sizes(batches)],
    }
    if policy.lenient:
        batch_conf["bucket_choice"] = "lenient"
    if policy.max_tps:
        batch_conf["max_tps"] = list(policy.max_tps)

    # The bucket whose batch has the fewest frames decides.
    most_frames = views * min(
        batch.utterances * shape.frames
        for batch, shape in zip(batches, shapes, strict=True)
        if batch and shape
    )
    text = yaml.safe_dump({"batch_conf": batch_conf}, sort_keys=False, default_flow_style=None)
    return (
        f"{text}# or, to mix lengths in a batch: "
        f"{{batch_type: dynamic, max_frames_in_batch: {most_frames}}}\n"
    )


def _bucket_sizes(batches: Sequence[LargestBatch | None]) -> list[int]:
    """Return the batch size of each bucket; batches are ordered from the shortest utterances."""
    size = min(batch.utterances for batch in batches if batch)
    sizes: list[int] = []
    # From the longest utterances to the shortest: their batch size also fits an empty bucket of
    # shorter ones.
    for batch in reversed(batches):
        size = batch.utterances if batch else size
        sizes.insert(0, size)

    return sizes
