"""Run the model on the validation set."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from wenet_uio.dataset.types import Batch
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.freezing import train_mode
from wenet_uio.train.memory import Failure, TooLarge
from wenet_uio.train.metrics import OF_TRAINING, count, loss_sums
from wenet_uio.train.micro_batches import SizedBatches, emptied, on_device, steps, timed
from wenet_uio.train.used_units import NO_CTC_LOSS, without_ctc_loss

log = logging.getLogger(__name__)


@torch.no_grad()
def validate(
    engine: Engine, batches: SizedBatches, asked_to_stop: Callable[[], bool], next_step: int = 1
) -> dict[str, float] | None:
    """Run the model without dropout on the `batches` of every rank.

    Batches that do not fit in memory are split, here and from optimizer step `next_step` on; see
    memory.py. The log has the utterances that are left out, by reason.

    Returns:
        Sums over all ranks, named as in StepOutcome.sums; None if `asked_to_stop` was true on a
        rank.

    Raises:
        StartAgainError: a rank ran out of memory and the engine cannot repeat the batch.
        ValueError: a single utterance does not fit in memory.
    """
    world = engine.world
    world.share_buffers(engine.model)
    engine.model.eval()
    began = time.perf_counter()
    sums = dict.fromkeys((*count(()), "wait"), 0.0)
    names = [name for name in engine.names if name not in OF_TRAINING]
    losses = torch.zeros(len(names), dtype=torch.float64, device=world.device)
    too_large: list[TooLarge] = []
    left_out: Counter[str] = Counter()
    without_ctc: Counter[str] = Counter()

    for whole_batches, wait in timed(steps(batches, 1)):
        micro_batches = [
            part for batch in whole_batches for part in engine.size_limit.parts(batch, next_step)
        ]
        most, stop = world.largest(engine.vector([len(micro_batches), asked_to_stop()])).tolist()
        if stop:
            return None

        sums["wait"] += wait
        for name, value in count(whole_batches).items():
            sums[name] += value
        left_out += _left_out(whole_batches)

        if engine.in_step:  # ranks with fewer micro-batches run empty ones
            micro_batches += [emptied(micro_batches[0])] * (int(most) - len(micro_batches))

        for batch in micro_batches:
            if len(batch) or engine.in_step:
                losses += _losses(engine, batch, names, next_step, too_large)
        without_ctc[NO_CTC_LOSS] += without_ctc_loss(engine, whole_batches)

    _log_left_out(world, left_out, without_ctc)
    train_mode(engine.model)
    engine.size_limit.too_large.update(*world.gather(too_large))
    sums["elapsed"] = time.perf_counter() - began
    values = world.sum(torch.cat([engine.vector(list(sums.values())), losses]))

    return engine.per_utterance(dict(zip((*sums, *names), values.tolist(), strict=True)))


def _losses(
    engine: Engine, batch: Batch, names: Sequence[str], next_step: int, too_large: list[TooLarge]
) -> torch.Tensor:
    """Return sums of the losses of a batch, splitting it until its parts fit in memory.

    The sizes that did not fit are added to `too_large`.
    """
    try:
        losses = engine.objective(on_device(batch, engine.world.device))
        return loss_sums(losses, batch, names, engine.of_tokens)
    except (RuntimeError, MemoryError) as error:
        failure = Failure.of(error)

    # Outside of the handler, because the error holds the memory of the batch.
    too_large.append(engine.note([batch], next_step, failure))
    sums = [
        _losses(engine, part, names, next_step, too_large)
        for part in engine.size_limit.parts(batch, next_step)
    ]
    return torch.stack(sums).sum(dim=0)


def _left_out(batches: Sequence[Batch]) -> Counter[str]:
    """Count the utterances that are left out of batches, by reason."""
    return Counter(sample.reason for batch in batches for sample in batch.skipped)


def _log_left_out(world: World, left_out: Counter[str], without_ctc: Counter[str]) -> None:
    """Log on rank 0 how many utterances all ranks left out, by reason, and how many have no CTC
    loss.
    """
    left_out, without_ctc = world.add_up(left_out, without_ctc)
    if world.rank != 0:
        return
    if left_out:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(left_out.items()))
        log.info("validation left out: %s", reasons)
    for reason, number in without_ctc.items():
        if number:
            log.info("validation: %d %s", number, reason)
