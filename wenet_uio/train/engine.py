"""One optimizer step, on one process or on many.

    micro-batches of the step  ->  counts, summed over the ranks
    each micro-batch           ->  losses, weighted by its share of the step  ->  gradients
    the last micro-batch       ->  gradients, summed over the ranks  ->  clipped  ->  weights

The device decides what depends on its results, such as clipping. The host reads them once in a
step: after it has launched the next one, or before the update with fp16 and with ScaledAdam, where
it decides whether weights change. A step without a finite gradient leaves weights, optimizer and
statistics as they were.

The loss of a step is the mean over all its utterances, on all ranks and in all micro-batches. With
length_normalized_loss, the attention loss is the mean over all tokens of the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from wenet_uio.base.crashes import StartAgainError
from wenet_uio.config import Config
from wenet_uio.dataset.types import Batch
from wenet_uio.models.clock import set_clocks
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.models.weights import fill_weights
from wenet_uio.train.distributed import World, seed_everything
from wenet_uio.train.layers import (
    compile_layers,
    compiles_layers,
    freeze_weights,
    train_mode,
    warm_up,
)
from wenet_uio.train.memory import Failure, SizeLimit, TooLarge
from wenet_uio.train.metrics import count_batches, loss_sums
from wenet_uio.train.micro_batches import emptied_batch, join_on_device, on_device
from wenet_uio.train.objective import Objective, allows_few_shapes, cr_weight
from wenet_uio.train.optimizer import (
    build_optimizer,
    collect_on_rank_0,
    load_optimizer_state,
    optimizer_state,
    part_of_rank,
)
from wenet_uio.train.schedules import build_schedule
from wenet_uio.train.statistics import Statistics
from wenet_uio.train.stored_frames import StoredFrames
from wenet_uio.train.update import LaunchedStep, Reading, ReadingOf, StepOutcome, clip_and_apply


class Engine:
    """The common part of all engines.

    A subclass says how ranks share the model and how they exchange gradients.
    """

    in_step = False
    """True if all ranks must run the model equally often, because each forward and backward pass is
    an exchange. If a rank then runs out of memory, the run ends and must be started again."""

    def __init__(self, model: TrainableModel, config: Config, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.epoch = 0  # completed epochs, on which learning rates may depend
        self.ahead_steps = self.ahead_epochs = 0.0
        """How far the learning rates are ahead of the steps and epochs, see timing.py."""
        self.config = config
        self.model = model.to(world.device)
        freeze_weights(self.model, config)
        self.stored_frames = StoredFrames(self.model, config) if config.store_frames else None
        if self.stored_frames is not None:
            self.model.training_encoder = self.stored_frames
        self.names = model.loss_names
        self.of_tokens = {"th_accuracy"}
        """Names of the losses that are means over tokens."""
        if config.model_conf.length_normalized_loss:
            self.of_tokens.add("loss_att")

        self.schedule = build_schedule(config)
        self.objective = Objective(
            self.model,
            world.device,
            config.dtype,
            few_shapes=allows_few_shapes(self.model, world.device, config),
        )
        self.synced: Any = self.objective
        """The objective as `wrap` connects it to the other ranks."""
        self.saved: Mapping[str, Any] | None = None
        """The state from `load_state_dict`, until `connect` has loaded its optimizer."""
        self.size_limit = SizeLimit(config.dataset_conf)
        self.statistics = Statistics(self.model)
        self.cold = compiles_layers(config, world.device)
        """True until the layers are compiled, if they are to be."""

    def connect(self) -> None:
        """Connect the model to the other ranks, and load the state from `load_state_dict`."""
        if self.cold:
            compile_layers(self.model)

        train_mode(self.model)
        self.wrap()
        self.optimizer = build_optimizer(self.model, self.config)
        self.scaler = GradScaler(self.world.device.type, enabled=self.config.dtype == "fp16")

        if self.saved is not None:
            load_optimizer_state(self.model, self.optimizer, self.saved["optimizer"])
            self.scaler.load_state_dict(self.saved["scaler"])
            self.saved = None

    def begin_epoch(self, epoch: int) -> None:
        """Note the number of completed epochs."""
        self.epoch = epoch
        if self.stored_frames is not None:
            self.stored_frames.begin_epoch(epoch)

    def wrap(self) -> None:
        """Connect `objective` to the other ranks and set `synced`."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Release the connections to the other ranks."""
        self.synced = self.objective

    def without_exchange(self) -> Any:
        """Return a context in which backward passes do not exchange gradients.

        All micro-batches of a step but the last run in it.
        """
        return nullcontext()

    def lrs(self, number: int) -> list[float]:
        """Return the learning rate of each group of weights in optimizer step `number` (from 1)."""
        factor = self.schedule(number + self.ahead_steps, self.epoch + self.ahead_epochs)
        return [group["base_lr"] * factor for group in self.optimizer.param_groups]

    def step(
        self, micro_batches: Sequence[Batch], number: int, extra_sums: Mapping[str, float]
    ) -> StepOutcome:
        """Run optimizer step `number` (from 1), and wait for its result; see `launch`."""
        return self.launch(micro_batches, number, extra_sums).outcome()

    def launch(
        self, micro_batches: Sequence[Batch], number: int, extra_sums: Mapping[str, float]
    ) -> LaunchedStep:
        """Start optimizer step `number` (from 1).

        An accelerator still computes it when this returns.

        Args:
            micro_batches: those of this rank.
            extra_sums: numbers to sum over the ranks, for StepOutcome.sums.

        Raises:
            StartAgainError: a rank ran out of memory and the engine cannot repeat the step.
            ValueError: a single utterance does not fit in memory.
        """
        if self.cold and not self.in_step:
            self._warm_up(micro_batches)

        counts = {**count_batches(micro_batches), **extra_sums}
        sums_over_ranks = self.world.sum(self.vector(list(counts.values())))
        totals = dict(zip(counts, sums_over_ranks, strict=True))

        lrs = self.lrs(number)
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr

        self.statistics.keep()
        reading = self._attempt_step(micro_batches, number, totals)
        while reading is None:  # out of memory: each attempt splits the batches further
            self.start_over()
            self.statistics.restore()
            reading = self._attempt_step(micro_batches, number, totals)

        scaled = partial(self.per_utterance, views_weight=cr_weight(self.config, number))
        return LaunchedStep(number, reading, (*counts, *self.names), lrs, scaled)

    def _warm_up(self, micro_batches: Sequence[Batch]) -> None:
        """Compile the layers by passes that change neither gradients nor statistics."""

        def run(batch: Batch) -> None:
            self.backward(self.synced(batch)["loss"], last=False)

        self.statistics.keep()
        with self.without_exchange():
            self.cold = not warm_up(run, micro_batches, self.world.device)

        self.optimizer.zero_grad(set_to_none=True)
        self.statistics.restore()

    def _attempt_step(
        self, micro_batches: Sequence[Batch], number: int, totals: Mapping[str, torch.Tensor]
    ) -> Reading | None:
        """Compute the gradients and change the weights; `totals` are the counts of all ranks.

        Returns:
            `totals`, the sums of the losses over the ranks, two numbers that are not 0 if weights or
            statistics of a rank are not finite, and the norm of the gradient. None if a rank ran
            out of memory: the weights are unchanged, `size_limit` knows the size, and the step must
            be repeated.
        """
        of_all = {name: totals[name].clamp(min=1) for name in ("utterances", "tokens")}
        weights_spoilt = self._weights_spoilt()
        losses, too_large = self._compute_gradients(micro_batches, number, of_all)
        if self._any_rank_out_of_memory(too_large):
            return None

        spoilt = torch.stack([weights_spoilt, self._flag_if_any(self.statistics.spoilt())])
        sums = [torch.stack([*totals.values()]), self.world.sum(torch.cat([losses, spoilt]))]

        def reading_of(norm: torch.Tensor) -> Reading:
            self.statistics.restore_if(~norm.isfinite())
            return Reading(torch.cat([*sums, norm.to(losses).reshape(1)]))

        return self._update_or_explain(number, reading_of)

    def _weights_spoilt(self) -> torch.Tensor:
        """Return 1 () if trained weights that this rank holds are infinite or NaN, else 0."""
        weights = [
            part_of_rank(weight) for weight in self.model.parameters() if weight.requires_grad
        ]
        # The sum of the squares of a weight is finite only if all of its values are.
        return self._flag_if_any([~nn.utils.get_total_norm(weights).isfinite()])

    def _flag_if_any(self, conditions: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return 1 () if one of the conditions () is true, else 0, as float64 on the device."""
        if not conditions:
            return torch.zeros((), dtype=torch.float64, device=self.world.device)
        return torch.stack([*conditions]).any().to(torch.float64)

    def spoilt_weights(self) -> list[str]:
        """Return names of the trained weights that are infinite or NaN on a rank.

        The host waits for the device. All ranks must call this together.
        """
        if not float(self.world.sum(self._weights_spoilt())):
            return []

        names = [
            name
            for name, weight in self.model.named_parameters()
            if weight.requires_grad and not part_of_rank(weight).isfinite().all()
        ]
        return sorted(set(chain.from_iterable(self.world.gather(names))))

    def _any_rank_out_of_memory(self, too_large: TooLarge | None) -> bool:
        """Tell whether any rank ran out of memory; `too_large` is the failure of this rank, or None.

        The hosts tell one another, so that none waits for its accelerator.
        """
        if self.world.size == 1 or self.in_step:
            return too_large is not None
        if not self.world.largest(torch.tensor([float(too_large is not None)])):
            return False

        self.size_limit.too_large.update(filter(None, self.world.gather(too_large)))
        return True

    def _compute_gradients(
        self, micro_batches: Sequence[Batch], number: int, of_all: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, TooLarge | None]:
        """Compute the gradients, summed over the ranks.

        Returns:
            Sums of the losses of this rank, and the size of a batch that did not fit in memory.
        """
        device, most_frames = self.world.device, self.config.join_micro_batches
        passes = self._fill_up_passes(
            self.size_limit.passes(micro_batches, number, device, most_frames)
        )
        self.settle_exchange(passes[0][0], of_all)
        seed_everything(self.seed, number, self.world.rank)
        set_clocks(self.model, number)
        views_weight = cr_weight(self.config, number)
        losses = torch.zeros(len(self.names), dtype=torch.float64, device=device)
        too_large = None

        for pass_number, group in enumerate(passes, 1):
            exchanges = pass_number == len(passes)
            context = nullcontext() if exchanges else self.without_exchange()
            failure = None
            try:
                with context:
                    # No name for the joined batch: it would hold its memory during the next pass.
                    losses += self._backward_pass(
                        join_on_device(device, group), of_all, exchanges, views_weight
                    )
            except (RuntimeError, MemoryError) as error:
                failure = Failure.of(error)

            # Outside of the handler, because the error holds the memory of the step
            if failure is not None:
                self.optimizer.zero_grad(set_to_none=True)
                too_large = self.note(group, number, failure)
                break

        if too_large is not None:
            self.complete_exchange()
        return losses, too_large

    def note(self, batches: Sequence[Batch], number: int, failure: Failure) -> TooLarge:
        """Note that `batches`, one or several joined, did not fit in memory.

        From step `number` on, batches of this size are split.

        Raises:
            StartAgainError: the other ranks wait in an exchange that this rank can no longer join.
            ValueError: the batch has a single utterance.
        """
        too_large = self.size_limit.note(batches, number, failure.message)
        if self.in_step or failure.of_exchange:
            raise StartAgainError(
                f"step {number}: {self.config.train_engine} cannot split the batch of a running "
                "step; run the same command again: training resumes from the newest state with "
                "such batches split"
            )

        return too_large

    def settle_exchange(self, batch: Batch, of_all: Mapping[str, torch.Tensor]) -> None:
        """Bring the exchange of gradients into its final form, before the first step of a start.

        Args:
            batch: a micro-batch of the step.
            of_all: utterances and tokens of the step on all ranks.
        """

    def complete_exchange(self) -> None:
        """Complete the exchange of gradients of a step in which this rank ran out of memory."""

    def start_over(self) -> None:
        """Discard the gradients of a step in which a rank ran out of memory."""
        self.optimizer.zero_grad(set_to_none=True)

    def _fill_up_passes(self, passes: list[list[Batch]]) -> list[list[Batch]]:
        """Add passes of empty batches up to the largest number of passes of a rank.

        Only engines that are `in_step` need this.
        """
        if not self.in_step:
            return passes
        most = int(self.world.largest(torch.tensor([len(passes)])))
        empty_pass = [emptied_batch(passes[0][0])]
        return passes + [empty_pass] * (most - len(passes))

    def _backward_pass(
        self,
        batch: Batch,
        of_all: Mapping[str, torch.Tensor],
        last: bool,
        views_weight: float | None = None,
    ) -> torch.Tensor:
        """Add the gradients of a micro-batch, weighted by its share of the step.

        Args:
            of_all: utterances and tokens of the step on all ranks.
            last: exchange the gradients.
            views_weight: weight of the divergence between two views; None: after the warm-up.

        Returns:
            Sums of the losses, see `loss_sums`.
        """
        losses = self.synced(on_device(batch, self.world.device), views_weight)
        counts = count_batches([batch])
        # Engines average over the ranks, so that the factor world.size gives each utterance the
        # weight 1 / utterances.
        shares = {
            unit: counts[unit] * self.world.size / of_all[unit]  # ()
            for unit in ("utterances", "tokens")
        }
        loss = losses["loss"] * shares["utterances"].to(losses["loss"].dtype)

        if "loss_att" in self.of_tokens and len(batch) and self.model.attention_weight > 0:
            # `loss` weights the attention loss by utterances; it is to be weighted by tokens.
            correction = (shares["tokens"] - shares["utterances"]).to(loss.dtype)
            weight = self.model.loss_weights()["loss_att"]
            if batch.text_only:
                weight = self.model.weights.text
            loss = loss + weight * losses["loss_att"] * correction

        self.backward(loss, last)
        return loss_sums(losses, batch, self.names, self.of_tokens)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add to the gradients, and average them over the ranks in the `last` pass of a step."""
        self.scaler.scale(loss).backward()

    def _update_or_explain(self, number: int, reading_of: ReadingOf) -> Reading:
        """Update the weights; explain an error of memory there, which no smaller batch prevents."""
        try:
            return self.update(reading_of)
        except (RuntimeError, MemoryError) as error:
            raise ValueError(
                f"step {number}: out of memory in the update of the weights "
                f"({Failure.of(error).message}). Weights, gradients and optimizer state need it "
                "whatever the batch: free memory of the device, share them over several ranks "
                "(train_engine torch_fsdp), or train a smaller model"
            ) from None

    def update(self, reading_of: ReadingOf) -> Reading:
        """Clip the gradient, and apply it if it is finite; return `reading_of` its norm."""
        weights = [weight for weight in self.model.parameters() if weight.grad is not None]
        reading = clip_and_apply(
            self.optimizer, self.scaler, weights, self.config.grad_clip, reading_of
        )
        self.optimizer.zero_grad(set_to_none=True)
        return reading

    def per_utterance(
        self, sums: dict[str, float], views_weight: float | None = None
    ) -> dict[str, float]:
        """Scale sums of losses over tokens, so that utterances divide them like other losses.

        `views_weight` is that of the step; None: after the warm-up.
        """
        if "loss_att" not in self.of_tokens or "loss_att" not in sums:
            return sums

        sums["loss_att"] *= sums["utterances"] / max(sums["tokens"], 1)
        # Texts without audio have other weights, so that their total loss cannot be put together.
        if not sums["texts"]:
            loss_weights = self.model.loss_weights(views_weight)
            sums["loss"] = sum(
                weight * sums.get(name, 0.0) for name, weight in loss_weights.items()
            )

        return sums

    def vector(self, values: Sequence[float]) -> torch.Tensor:
        """Copy numbers to the device as float64.

        From pinned memory, so that the host does not wait.
        """
        pinned = self.world.device.type == "cuda"
        on_host = torch.tensor(values, dtype=torch.float64, pin_memory=pinned)
        return on_host.to(self.world.device, non_blocking=True)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the state dict of the model on the CPU of rank 0; empty on other ranks.

        All ranks must call this together.
        """
        return collect_on_rank_0(self.model.state_dict(), self.world.rank)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimizer state, scaler and seed.

        The format is the same for all engines and numbers of ranks.

        All ranks must call this together. Weights and optimizer state are on the CPU of rank 0
        only.
        """
        return {
            "model": self.weights(),
            "optimizer": optimizer_state(self.model, self.optimizer, self.world.rank),
            "scaler": self.scaler.state_dict(),
            "seed": self.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a result of `state_dict`; call this before `connect`.

        Raises:
            ValueError: the state is of another model.
        """
        fill_weights(self.model, state["model"], "the state of the run")
        self.saved = state
        self.seed = state["seed"]
