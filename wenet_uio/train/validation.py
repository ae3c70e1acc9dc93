"""Run the model on the validation set."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import torch

from wenet_uio.dataset.types import Batch
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.layers import train_mode
from wenet_uio.train.memory import Failure, TooLarge
from wenet_uio.train.metrics import TRAINING_LOSSES, count_batches, loss_sums
from wenet_uio.train.micro_batches import (
    SizedBatches,
    emptied_batch,
    on_device,
    optimizer_steps,
    timed_items,
)
from wenet_uio.train.units import NO_CTC_LOSS, count_without_ctc_loss

log = logging.getLogger(__name__)


@torch.no_grad()
def validate(
    engine: Engine,
    batches: SizedBatches,
    asked_to_stop: Callable[[], bool],
    next_step: int = 1,
    nonfinite: list[str] | None = None,
) -> dict[str, float] | None:
    """Run the model without dropout on the `batches` of every rank.

    Batches that do not fit in memory are split, here and from optimizer step `next_step` on; see
    memory.py. The log has the utterances that are left out, by reason. Utterances whose loss is
    infinite or NaN are left out of the sums, too, and the keys of those of all ranks are added to
    `nonfinite`.

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
    sums = dict.fromkeys((*count_batches(()), "wait"), 0.0)
    losses = _Losses(engine, next_step, asked_to_stop)
    left_out: Counter[str] = Counter()
    """Utterances of this rank that the loader left out, by reason."""
    num_without_ctc = 0

    for whole_batches, wait in timed_items(optimizer_steps(batches, 1)):
        micro_batches: list[Batch] = []
        for batch in whole_batches:
            micro_batches += engine.size_limit.parts(batch, next_step)
            left_out.update(sample.reason for sample in batch.skipped)

        # One exchange: the most micro-batches of a rank, and whether one was asked to stop, or has
        # utterances without a finite loss in the batches before.
        asked = engine.vector([len(micro_batches), asked_to_stop()])
        most, stop, spoilt = world.largest(torch.cat([asked, losses.nonfinite_flag()])).tolist()
        if stop:
            return None
        if spoilt:
            losses.name_spoilt()

        sums["wait"] += wait
        for name, value in count_batches(whole_batches).items():
            sums[name] += value

        if engine.in_step:  # ranks with fewer micro-batches run empty ones
            micro_batches += [emptied_batch(micro_batches[0])] * (int(most) - len(micro_batches))

        losses.add([batch for batch in micro_batches if len(batch) or engine.in_step])
        num_without_ctc += count_without_ctc_loss(engine, whole_batches)

    if float(world.largest(losses.nonfinite_flag())):
        losses.name_spoilt()
    sums |= losses.divisors(sums)

    _log_left_out(world, left_out, num_without_ctc)
    train_mode(engine.model)
    engine.size_limit.too_large.update(*world.gather(losses.too_large))
    keys = world.gather([key for utterance in losses.spoilt for key in utterance.keys])
    if nonfinite is not None:
        nonfinite.extend(chain.from_iterable(keys))

    sums["elapsed"] = time.perf_counter() - began
    values = world.sum(torch.cat([engine.vector(list(sums.values())), losses.sums]))

    return engine.per_utterance(dict(zip((*sums, *losses.names), values.tolist(), strict=True)))


class _Losses:
    """Sums of the losses of this rank, without utterances whose loss is infinite or NaN.

    The device adds only finite losses. So the host need not wait after each batch. It reads the
    `nonfinite_flag` of a batch later, and then computes a spoilt batch again, utterance by utterance.
    """

    def __init__(self, engine: Engine, next_step: int, beat: Callable[[], object]) -> None:
        """Take the arguments of `validate`; `beat` is called before each single utterance."""
        self.engine = engine
        self.next_step = next_step
        self.beat = beat
        self.names = [name for name in engine.names if name not in TRAINING_LOSSES]
        self.sums = torch.zeros(len(self.names), dtype=torch.float64, device=engine.world.device)
        self.too_large: list[TooLarge] = []
        """Sizes that did not fit in memory."""
        self.spoilt: list[Batch] = []
        """Utterances whose loss is not finite, each as a batch."""
        self._last: list[tuple[Batch, torch.Tensor]] = []
        """The last batches, and whether their losses are finite."""

    def add(self, batches: Sequence[Batch]) -> None:
        """Add the losses of batches that are finite."""
        self._last = []
        for batch in batches:
            losses, is_finite = self._compute(batch)
            self.sums += torch.where(is_finite, losses, 0.0)
            self._last.append((batch, is_finite))

    def nonfinite_flag(self) -> torch.Tensor:
        """Return 1 (1,) on the device if one of the last batches has no finite loss, else 0."""
        if not self._last:
            return self.sums.new_zeros(1)

        all_finite = torch.stack([is_finite for _, is_finite in self._last]).all()
        return (~all_finite).to(self.sums)[None]

    def name_spoilt(self) -> None:
        """Find the utterances that spoil the last batches, and add the losses of the others.

        Ranks of an engine that is `in_step` must call this together.
        """
        utterances: list[Batch] = []
        for batch, is_finite in self._last:
            if not is_finite:
                utterances += [batch.rows(slice(row, row + 1)) for row in range(len(batch))]

        if self.engine.in_step:  # ranks with fewer utterances run empty batches
            most = int(self.engine.world.largest(torch.tensor([len(utterances)])))
            utterances += [emptied_batch(self._last[0][0])] * (most - len(utterances))

        for utterance in utterances:
            self.beat()
            losses, is_finite = self._compute(utterance)
            if is_finite:
                self.sums += losses
            else:
                self.spoilt.append(utterance)

    def divisors(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return the counts by which the sums of the losses are divided: `counts`, of all utterances
        that were read, without the spoilt ones.
        """
        spoilt = count_batches(self.spoilt)
        return {name: counts[name] - spoilt[name] for name in ("utterances", "texts", "tokens")}

    def _compute(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sums (names,) of the losses of a batch, and whether (bool ()) the total loss is
        finite.
        """
        losses = self._split_until_it_fits(batch)
        return losses, losses[self.names.index("loss")].isfinite()

    def _split_until_it_fits(self, batch: Batch) -> torch.Tensor:
        """Return sums (names,) of the losses of a batch, which is halved if memory runs out."""
        engine = self.engine
        try:
            losses = engine.objective(on_device(batch, engine.world.device))
            return loss_sums(losses, batch, self.names, engine.of_tokens)
        except (RuntimeError, MemoryError) as error:
            failure = Failure.of(error)

        # Outside of the handler, because the error holds the memory of the batch.
        self.too_large.append(engine.note([batch], self.next_step, failure))
        parts = engine.size_limit.parts(batch, self.next_step)
        return torch.stack([self._split_until_it_fits(part) for part in parts]).sum(dim=0)


def _log_left_out(world: World, left_out: Counter[str], num_without_ctc: int) -> None:
    """Log on rank 0 how many utterances all ranks left out, by reason, and how many have no CTC
    loss.
    """
    left_out, without_ctc = world.add_up(left_out, Counter({NO_CTC_LOSS: num_without_ctc}))
    if world.rank != 0:
        return
    if left_out:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(left_out.items()))
        log.info("validation left out: %s", reasons)
    if without_ctc[NO_CTC_LOSS]:
        log.info("validation: %d %s", without_ctc[NO_CTC_LOSS], NO_CTC_LOSS)
