"""One optimizer step, on one process or many.

    micro-batches of the step  ->  counts, summed over the ranks
    each micro-batch           ->  its losses, weighted by its share of the step  ->  gradients
    the last one               ->  gradients, summed over the ranks  ->  clipped  ->  weights

A step's gradient is that of the mean over all its utterances, on whatever rank and in whatever micro-batch they are
(of the mean over all its tokens for the attention loss, with length_normalized_loss).
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from wenet_uio.cli import StartAgainError
from wenet_uio.config import Config
from wenet_uio.dataset.types import Batch
from wenet_uio.models import ASRModel
from wenet_uio.models.weights import fill
from wenet_uio.train.distributed import World
from wenet_uio.train.freezing import freeze, train_mode
from wenet_uio.train.memory import SizeLimit, in_brief, is_out_of_memory
from wenet_uio.train.metrics import count, loss_sums
from wenet_uio.train.micro_batches import SizedBatches, emptied, steps, timed
from wenet_uio.train.objective import Objective
from wenet_uio.train.optimizer import build_optimizer, build_schedule, load_optimizer_state, optimizer_state, whole

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepOutcome:
    """What one optimizer step did; equal on every rank."""

    sums: dict[str, float]
    """Over all ranks: what metrics.count names, losses times utterances, and the caller's own numbers."""
    grad_norm: float
    """Of the gradient before clipping."""
    lrs: list[float]
    """Of each group of weights; the last has all that have no rate of their own."""
    applied: bool
    """False: the gradient was not finite and the weights are as before."""


class Engine:
    """What all engines share. An engine says how the model lies on the ranks, and how they exchange gradients."""

    in_step = False
    """Whether the ranks must run the model equally often, because each run is an exchange. Memory that fails a rank
    within one ends the run, which is to be started again."""
    exchanges_meanwhile = True
    """Whether the backward pass of a step's last micro-batch exchanges gradients."""

    def __init__(self, model: ASRModel, config: Config, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.config = config
        self.model = model.to(world.device)
        freeze(self.model, config)
        self.names = model.loss_names
        self.of_tokens = {"th_accuracy", *(["loss_att"] if config.model_conf.length_normalized_loss else [])}
        self.schedule = build_schedule(config)
        self.objective = Objective(self.model, world.device, AUTOCAST[config.dtype])
        self.synced: Callable[[Batch], Mapping[str, torch.Tensor]] = self.objective
        self.saved: Mapping[str, Any] | None = None
        self.size_limit = SizeLimit(config.dataset_conf)
        self.statistics = [
            buffer for layer in model.modules() if isinstance(layer, nn.BatchNorm1d) for buffer in layer.buffers()
        ]
        """What a forward pass changes, and a step that is made again must not change twice."""

    def connect(self) -> None:
        """Tie this rank's model to the others', and take up what `load_state_dict` gave."""
        if self.config.torch_compile:
            for layer in layers_of(self.model):
                layer.compile(dynamic=True)
        train_mode(self.model)
        self.wrap()
        self.optimizer = build_optimizer(self.model, self.config)
        self.scaler = torch.amp.GradScaler(self.world.device.type, enabled=self.config.dtype == "fp16")
        if self.saved is not None:
            load_optimizer_state(self.model, self.optimizer, self.saved["optimizer"])
            self.scaler.load_state_dict(self.saved["scaler"])
            self.saved = None

    def wrap(self) -> None:
        """Lay the model out over the ranks."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Undo `connect`."""
        self.synced = self.objective

    def apart(self) -> Any:
        """A context in which gradients stay on their rank: the last micro-batch of a step exchanges those of all."""
        return nullcontext()

    def lrs(self, number: int) -> list[float]:
        """Learning rates of optimizer step `number`, from 1."""
        return [group["base_lr"] * self.schedule(number) for group in self.optimizer.param_groups]

    def step(self, micro_batches: Sequence[Batch], number: int, also: Mapping[str, float]) -> StepOutcome:
        """Run optimizer step `number` (from 1) on this rank's `micro_batches`; `also` is summed over the ranks too."""
        counts = {**count(micro_batches), **also}
        reduced = self.world.sum(self._vector(list(counts.values())))
        of_all = dict(zip(counts, reduced.clamp(min=1), strict=True))
        before = [buffer.clone() for buffer in self.statistics]
        while (losses := self._gradients(micro_batches, number, of_all)) is None:
            self.start_over()
            for buffer, value in zip(self.statistics, before, strict=True):
                buffer.copy_(value)
        lrs = self.lrs(number)
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr
        norm = self.update()
        values = torch.cat([reduced, losses, norm.reshape(1)]).tolist()
        sums = dict(zip((*counts, *self.names, "grad_norm"), values, strict=True))
        grad_norm = sums.pop("grad_norm")
        return StepOutcome(self._per_utterance(sums), grad_norm, lrs, applied=abs(grad_norm) < float("inf"))

    def _gradients(
        self, micro_batches: Sequence[Batch], number: int, of_all: Mapping[str, torch.Tensor]
    ) -> torch.Tensor | None:
        """Leave the gradients of all ranks behind, and give their losses; None where memory failed some rank."""
        seed_everything(self.seed, number, self.world.rank)
        micro_batches = self._filled_up(
            [part for batch in micro_batches for part in self.size_limit.parts(batch, number)]
        )
        losses, too_large = self._vector([0.0] * len(self.names)), None
        for place, batch in enumerate(micro_batches, 1):
            last, said = place == len(micro_batches) and self.exchanges_meanwhile, None
            try:
                with nullcontext() if last else self.apart():
                    losses += self._backward(batch.to(self.world.device), of_all, last)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                said = in_brief(error)
            if said is not None:  # outside of the handler, where the error holds on to what the step has allocated
                self.optimizer.zero_grad(set_to_none=True)
                too_large = self.size_limit.note(batch, number, said)
                if self.in_step:  # the others are within an exchange that this rank cannot take part in any more
                    raise StartAgainError(
                        f"step {number}: {self.config.train_engine} cannot split a batch that is under way; "
                        "start again: the run goes on from its newest state, with such batches split"
                    )
                break
        self.end_exchange(micro_batches[0], of_all, broken_off=too_large is not None)
        *sums, failures = self.world.sum(torch.cat([losses, self._vector([too_large is not None])])).split(1)
        if not failures:
            return torch.cat(sums)
        self.size_limit.too_large.update(filter(None, self.world.gather(too_large)))
        return None

    def end_exchange(self, batch: Batch, of_all: Mapping[str, torch.Tensor], *, broken_off: bool) -> None:
        """After the micro-batches of a step, one of which is `batch`: see that the ranks have exchanged gradients."""

    def start_over(self) -> None:
        """Forget the gradients of a step that memory failed some rank in."""
        self.optimizer.zero_grad(set_to_none=True)

    def _filled_up(self, micro_batches: list[Batch]) -> list[Batch]:
        """As many micro-batches as the rank with the most, with empty ones, where that matters."""
        most = int(self.world.largest(self._vector([len(micro_batches)]))) if self.in_step else 0
        return [*micro_batches, *[emptied(micro_batches[0])] * (most - len(micro_batches))]

    def _backward(self, batch: Batch, of_all: Mapping[str, torch.Tensor], last: bool) -> torch.Tensor:
        losses = self.synced(batch)
        counts = count([batch])
        # Engines divide by the number of ranks; every utterance is to weigh 1 / utterances.
        share = {unit: counts[unit] * self.world.size / of_all[unit] for unit in ("utterances", "tokens")}
        loss = losses["loss"] * share["utterances"].to(losses["loss"].dtype)
        if "loss_att" in self.of_tokens and len(batch) and self.model.attention_weight > 0:
            more = (share["tokens"] - share["utterances"]).to(loss.dtype)
            weight = self.model.text_weight if batch.text_only else self.model.attention_weight
            loss = loss + weight * losses["loss_att"] * more
        self.backward(loss, last)
        return loss_sums(losses, batch, self.names, self.of_tokens)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add to the gradients; with the `last` micro-batch of a step they become those of all ranks."""
        self.scaler.scale(loss).backward()

    def update(self) -> torch.Tensor:
        """Clip and apply the gradient where it is finite; its norm, float64, equal on every rank."""
        self.scaler.unscale_(self.optimizer)
        weights = [weight for weight in self.model.parameters() if weight.grad is not None]
        own_norm = nn.utils.get_total_norm([weight.grad for weight in weights])
        norm = whole(own_norm)
        if torch.isfinite(norm):
            if norm > self.config.grad_clip:
                nn.utils.clip_grads_with_norm_(weights, self.config.grad_clip, own_norm)
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm.to(torch.float64)

    def _per_utterance(self, sums: dict[str, float]) -> dict[str, float]:
        """A loss that is a mean over tokens, as if it were one over utterances: sums over ranks add up either way."""
        if "loss_att" in self.of_tokens and "loss_att" in sums:
            sums["loss_att"] *= sums["utterances"] / max(sums["tokens"], 1)
        if "loss_att" in self.of_tokens and not sums["texts"] and "loss_att" in sums:
            model = self.model
            weights = {"att": model.attention_weight, "ctc": model.ctc_weight, "rnnt": model.transducer_weight}
            sums["loss"] = sum(weight * sums.get(f"loss_{name}", 0.0) for name, weight in weights.items())
        return sums

    def _vector(self, values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.world.device)

    @torch.no_grad()
    def validate(self, batches: SizedBatches, asked_to_stop: Callable[[], bool]) -> dict[str, float] | None:
        """Sums, over all ranks, of the losses of every rank's `batches`, without dropout; named as in StepOutcome.

        None when some rank is asked to stop meanwhile.
        """
        self.world.share_buffers(self.model)
        self.model.eval()
        began = time.perf_counter()
        sums = dict.fromkeys((*count(()), "wait"), 0.0)
        losses = self._vector([0.0] * len(self.names))
        for micro_batches, wait in timed(steps(batches, 1)):
            most, stop = self.world.largest(self._vector([len(micro_batches), asked_to_stop()])).tolist()
            if stop:
                return None
            sums["wait"] += wait
            for name, value in count(micro_batches).items():
                sums[name] += value
            filler = [emptied(micro_batches[0])] * (int(most) - len(micro_batches)) if self.in_step else []
            for batch in (*micro_batches, *filler):
                if len(batch) or self.in_step:
                    batch = batch.to(self.world.device)
                    losses += loss_sums(self.objective(batch), batch, self.names, self.of_tokens)
        train_mode(self.model)
        sums["elapsed"] = time.perf_counter() - began
        values = self.world.sum(torch.cat([self._vector(list(sums.values())), losses]))
        return self._per_utterance(dict(zip((*sums, *self.names), values.tolist(), strict=True)))

    def weights(self) -> dict[str, torch.Tensor]:
        """The model's state dict, whole, on the CPU. A joint act of all ranks."""
        return {name: whole(value).cpu() for name, value in self.model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """All that steps change. A joint act of all ranks; the same for every engine and number of ranks."""
        return {
            "model": self.weights(),
            "optimizer": optimizer_state(self.model, self.optimizer),
            "scaler": self.scaler.state_dict(),
            "seed": self.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where `state_dict` was called; before `connect`.

        Raises:
            ValueError: the weights are not those of this model.
        """
        fill(self.model, state["model"], "the state of the run")
        self.saved = state
        self.seed = state["seed"]


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The layers that encoder and decoders are stacks of."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            yield from module


def contiguous(model: nn.Module) -> None:
    """Lay kernels out in memory row by row, for engines that deal out rows; convolutions like channels last better."""
    for weight in model.parameters():
        weight.data = weight.data.contiguous()


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Make all that a step draws (dropout, chunk sizes) a function of these three: nothing of it need be saved."""
    drawn = int.from_bytes(hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest(), "little")
    random.seed(drawn)
    torch.manual_seed(drawn)
