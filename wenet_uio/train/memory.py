"""Handle batches that do not fit in memory: recognise the error, split, name the key to lower.

too_large.jsonl in the folder of the run has a line with step and size for each such batch. From
that step on, every rank splits batches that large beforehand, also after restarts. So a run that
was killed or ran out of memory again ends with the weights of a run without these interruptions.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from wenet_uio.base.files import append_line, read_lines
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.lengths import frame_count
from wenet_uio.dataset.plan.policies import audio_tokens_of, limiting_key
from wenet_uio.dataset.types import Batch
from wenet_uio.train.distributed import World
from wenet_uio.train.micro_batches import group_micro_batches

NO_MEMORY = re.compile(
    # "CUDA out of memory. Tried to allocate", "CUDA error: out of memory", and NCCL's own words
    r"out of memory"
    r"|can(no|')t allocate memory|not enough memory|bad_alloc"
    r"|ALLOC(ATION)?_FAILED"  # status of cuBLAS, cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE
    r"|Failed to CUDA (host )?[cm]alloc"  # NCCL
    r"|could not create a (primitive|memory)",  # oneDNN gives no other reason
    re.IGNORECASE,
)
"""What the messages of plain RuntimeErrors about memory have in common."""

log = logging.getLogger(__name__)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed, on the CPU or on a GPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None


def brief_message(error: BaseException) -> str:
    """Return the first line of the message, at most 160 characters."""
    return (str(error) or type(error).__name__).splitlines()[0][:160]


def free_cached() -> None:
    """Give memory that torch keeps for later back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Failure(NamedTuple):
    """A failed allocation."""

    message: str
    """The message of the error, in brief."""
    of_exchange: bool
    """True if an exchange between ranks needed the memory; this rank can then not complete it."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe `error`; raise it again if it is of another kind."""
        if not is_out_of_memory(error):
            raise error
        return cls(brief_message(error), isinstance(error, dist.DistError))


class TooLarge(NamedTuple):
    """The size of a batch that did not fit."""

    step: int
    """Optimizer step of the batch."""
    utterances: int
    frames: int
    """Frames of the longest utterance."""
    tokens: int
    """Tokens of the longest transcript."""

    def is_within(self, *batches: Batch) -> bool:
        """Tell whether `batches`, joined to one, need at least as much memory, whatever the model.

        Memory is a weighted sum of the sizes of activations, with weights that depend on the model.
        So a batch that is at least as large in each of them needs at least as much.
        """
        sizes = _activation_sizes(*_joined_size(batches))
        limits = _activation_sizes(self.utterances, self.frames, self.tokens)
        return all(size >= limit for size, limit in zip(sizes, limits, strict=True))


class SizeLimit:
    """Sizes of batches that did not fit in memory; batches that large are split beforehand."""

    def __init__(self, conf: DatasetConf) -> None:
        self.conf = conf
        self.too_large: set[TooLarge] = set()
        self._path: Path | None = None

    def keep_in(self, path: Path, world: World) -> None:
        """Load the sizes in the file, and append new ones to it.

        All ranks must call this together.
        """
        self._path = path
        sizes = None
        if world.rank == 0:
            records = read_lines(path, TooLarge._fields)
            sizes = set()
            for record in records:
                sizes.add(TooLarge(**{name: record[name] for name in TooLarge._fields}))

        self.too_large = world.gather(sizes)[0]
        if self.too_large and world.rank == 0:
            log.info(
                "%s: %d sizes of batches did not fit; batches that large are split",
                path,
                len(self.too_large),
            )

    def note(self, batches: Sequence[Batch], number: int, reason: str) -> TooLarge:
        """Record and log that a batch of step `number` did not fit, and free cached memory.

        Args:
            batches: several micro-batches if they were joined.
            reason: message of torch's error.

        Raises:
            ValueError: the batch has a single utterance, so that it cannot be split.
        """
        refusal = self.refusal(batches, number, reason)
        too_large = TooLarge(number, *_joined_size(batches))
        if too_large.utterances < 2:
            raise ValueError(refusal)

        self.too_large.add(too_large)
        if self._path is not None:
            append_line(self._path, {**too_large._asdict(), "said": refusal})

        remedy = "the batch is split in two" if len(batches) == 1 else "fewer are joined"
        log.warning("%s; %s", refusal, remedy)
        free_cached()
        return too_large

    def passes(
        self, micro_batches: Sequence[Batch], number: int, device: torch.device, most_frames: int
    ) -> list[list[Batch]]:
        """Return what a device computes in each pass of step `number`.

        A pass is a group of micro-batches to join (see `group_micro_batches`), or one part of a split batch.
        """

        def fit(group: Sequence[Batch]) -> bool:
            return self.fits(group, number)

        passes: list[list[Batch]] = []
        for group in group_micro_batches(micro_batches, device, most_frames, fit):
            if len(group) > 1:
                passes.append(group)
            else:
                passes += [[part] for part in self.parts(group[0], number)]

        return passes

    def fits(self, batches: Sequence[Batch], number: int) -> bool:
        """Tell whether `batches` of step `number`, joined, are below all sizes that did not fit."""
        # Sizes of later steps do not count: a run that resumes before them must give the same
        # batches as it did then.
        return not any(size.step <= number and size.is_within(*batches) for size in self.too_large)

    def parts(self, batch: Batch, number: int) -> list[Batch]:
        """Halve a batch of step `number` until no part is as large as a size that did not fit."""
        if len(batch) < 2 or self.fits([batch], number):
            return [batch]

        half = len(batch) // 2
        first, second = batch.rows(slice(None, half)), batch.rows(slice(half, None))
        return self.parts(first, number) + self.parts(second, number)

    def refusal(self, batches: Sequence[Batch], number: int, reason: str) -> str:
        """Return the error message: the size of the batch, and the key to lower."""
        return f"step {number}: out of memory for {self._advice(batches)} ({reason})"

    def _advice(self, batches: Sequence[Batch]) -> str:
        """Describe the size of the batch, and name the key to lower."""
        utterances, frames, tokens = _joined_size(batches)
        if utterances == 1:
            limit = self.conf.filter_conf.max_length
            key = f"filter_conf.max_length (now {limit} frames of 10 ms)"
            return f"one utterance of {frames} frames and {tokens} tokens: lower {key}"

        batch_conf = self.conf.batch_conf
        if batches[0].text_only or audio_tokens_of(batch_conf, self.conf.filter_conf):
            name = "batch_tokens" if batch_conf.token_buckets is None else "token_buckets"
            key = f"batch_conf.{name} (now {getattr(batch_conf, name)})"
        elif len(batches) > 1:
            key = "join_micro_batches"
        else:
            features = frame_count(self.conf)
            seconds = frames * features.shift / features.sample_rate
            key = f"batch_conf.{limiting_key(batch_conf, frames, seconds)}"

        return f"{utterances} utterances of up to {frames} frames and {tokens} tokens: lower {key}"


def _joined_size(batches: Sequence[Batch]) -> tuple[int, int, int]:
    """Return utterances, most frames and most tokens of the batch that `batches` give if joined."""
    utterances = sum(len(batch) for batch in batches)
    frames = max(batch.feats.size(1) for batch in batches)
    tokens = max(batch.target.size(1) for batch in batches)
    return utterances, frames, tokens


def _activation_sizes(utterances: int, frames: int, tokens: int) -> list[int]:
    """Return sizes of activations: of layers, of attention, and of the lattice of a transducer."""
    return [utterances * size for size in (frames, tokens, frames**2, tokens**2, frames * tokens)]
