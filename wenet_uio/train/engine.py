"""One optimizer step, on one process or many.

    micro-batches of the step  ->  counts, summed over the ranks
    each micro-batch           ->  its losses, weighted by its share of the step  ->  gradients
    the last one               ->  gradients, summed over the ranks  ->  clipped  ->  weights

A step's gradient is that of the mean over all its utterances, on whatever rank and in whatever micro-batch they are.
"""

from __future__ import annotations

import hashlib
import random
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wenet_uio.config.train import TrainKeys
from wenet_uio.dataset.types import Batch
from wenet_uio.models import ASRModel
from wenet_uio.models.decoder import BiTransformerDecoder
from wenet_uio.train.checkpoint import fill
from wenet_uio.train.distributed import World
from wenet_uio.train.metrics import count, loss_sums
from wenet_uio.train.optimizer import build_optimizer, build_schedule

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class SizedBatches(Protocol):
    """Batches, and into how many steps they close."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


class Objective(nn.Module):
    """The model as an engine runs it: one batch in, its mean losses out."""

    def __init__(self, model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.model = model
        self.device = device
        self.dtype = dtype

    def forward(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """The loss of a batch that is empty or without audio has a part of 0 that depends on every weight, so that all
        ranks exchange all gradients."""
        if not len(batch):
            return {"loss": self._nothing()}
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            losses = self.model(batch.feats, batch.feats_lengths, batch.target, batch.target_lengths)
        return {**losses, "loss": losses["loss"] + self._nothing()} if batch.text_only else losses

    def _nothing(self) -> torch.Tensor:
        return sum(weight.sum() for weight in self.model.parameters() if weight.requires_grad) * 0.0


@dataclass(frozen=True)
class StepOutcome:
    """What one optimizer step did; equal on every rank."""

    sums: dict[str, float]
    """Over all ranks: what metrics.count and metrics.loss_sums name, and the caller's own numbers."""
    grad_norm: float
    """Of the gradient before clipping."""
    lr: float
    applied: bool
    """False: the gradient was not finite and the weights are as before."""


class DdpEngine:
    """torch_ddp: every rank holds the whole model; gradients are averaged while they are computed."""

    def __init__(self, model: ASRModel, config: TrainKeys, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.model = model.to(world.device)
        freeze_idle(self.model)
        self.names = model.loss_names
        self.grad_clip = config.grad_clip
        self.schedule = build_schedule(config)
        self.base_lr: float = config.optim_conf.lr
        self.optimizer = build_optimizer(self.model, config)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.dtype == "fp16")
        self.objective = Objective(self.model, world.device, AUTOCAST[config.dtype])
        self.synced: nn.Module = self.objective

    def connect(self) -> None:
        """Tie this rank's model to the others', giving all of them rank 0's weights."""
        if self.world.size > 1:
            # Said of kernels (channels, 1, width), whose gradients lie in memory as they should.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            # Buffers (means of batch norm) are of no account to training; `validate` gives all ranks those of rank 0.
            self.synced = DistributedDataParallel(self.objective, gradient_as_bucket_view=True, broadcast_buffers=False)

    def disconnect(self) -> None:
        """Undo `connect`."""
        self.synced = self.objective

    def lr(self, number: int) -> float:
        """Learning rate of optimizer step `number`, from 1."""
        return self.base_lr * self.schedule(number)

    def step(self, micro_batches: Sequence[Batch], number: int, also: Mapping[str, float]) -> StepOutcome:
        """Run optimizer step `number` (from 1) on this rank's `micro_batches`; `also` is summed over the ranks too."""
        seed_everything(self.seed, number, self.world.rank)
        counts = {**count(micro_batches), **also}
        reduced = self.world.sum(self._vector(list(counts.values())))
        utterances = reduced[0].clamp(min=1)
        losses = self._vector([0.0] * len(self.names))
        for place, batch in enumerate(micro_batches, 1):
            # DDP divides by the number of ranks; every utterance is to weigh 1 / utterances.
            share = len(batch) * self.world.size / utterances
            with nullcontext() if place == len(micro_batches) else self._apart():
                losses += self._backward(batch.to(self.world.device), share)
        lr = self.lr(number)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        norm = self._update()
        names = (*counts, *self.names, "grad_norm")
        values = torch.cat([reduced, self.world.sum(losses), norm.reshape(1)]).tolist()
        sums = dict(zip(names, values, strict=True))
        grad_norm = sums.pop("grad_norm")
        return StepOutcome(sums, grad_norm, lr, applied=abs(grad_norm) < float("inf"))

    def _backward(self, batch: Batch, share: torch.Tensor) -> torch.Tensor:
        losses = self.synced(batch)
        self.scaler.scale(losses["loss"] * share.to(losses["loss"].dtype)).backward()
        return loss_sums(losses, batch, self.names)

    def _update(self) -> torch.Tensor:
        """Clip and apply the gradient where it is finite; its norm, float64."""
        self.scaler.unscale_(self.optimizer)
        weights = [weight for weight in self.model.parameters() if weight.grad is not None]
        norm = nn.utils.get_total_norm([weight.grad for weight in weights])
        if torch.isfinite(norm):
            if norm > self.grad_clip:
                nn.utils.clip_grads_with_norm_(weights, self.grad_clip, norm)
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm.to(torch.float64)

    def _apart(self) -> Any:
        """Gradients stay on their rank: the last micro-batch of a step exchanges those of all."""
        return self.synced.no_sync() if isinstance(self.synced, DistributedDataParallel) else nullcontext()

    def _vector(self, values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.world.device)

    @torch.no_grad()
    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Sums, over all ranks, of the losses of every rank's `batches`, without dropout; named as in StepOutcome."""
        self.world.share_buffers(self.model)
        self.model.eval()
        began = time.perf_counter()
        sums = dict.fromkeys((*count(()), *self.names, "wait", "elapsed"), 0.0)
        losses = self._vector([0.0] * len(self.names))
        for batch, wait in timed(batches):
            for name, value in count([batch]).items():
                sums[name] += value
            sums["wait"] += wait
            if len(batch):
                batch = batch.to(self.world.device)
                losses += loss_sums(self.objective(batch), batch, self.names)
        self.model.train()
        sums.update(zip(self.names, losses.tolist(), strict=True))
        sums["elapsed"] = time.perf_counter() - began
        return dict(zip(sums, self.world.sum(self._vector(list(sums.values()))).tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "seed": self.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where `state_dict` was called.

        Raises:
            ValueError: the weights are not those of this model.
        """
        fill(self.model, state["model"], "the state of the run")
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.seed = state["seed"]


def freeze_idle(model: ASRModel) -> None:
    """Freeze what has no part in the loss, so that DDP need not search every step for weights without a gradient."""
    if model.ctc_weight == 0:
        model.ctc.requires_grad_(False)
    if model.attention_weight == 0:
        model.decoder.requires_grad_(False)
    elif model.reverse_weight == 0 and isinstance(model.decoder, BiTransformerDecoder):
        model.decoder.right_decoder.requires_grad_(False)


def build_engine(model: ASRModel, config: TrainKeys, world: World, seed: int) -> DdpEngine:
    """The engine that `config.train_engine` names, not yet connected."""
    return {"torch_ddp": DdpEngine}[config.train_engine](model, config, world, seed)


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Make all that a step draws (dropout, chunk sizes) a function of these three: nothing of it need be saved."""
    drawn = int.from_bytes(hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest(), "little")
    random.seed(drawn)
    torch.manual_seed(drawn)


def steps(batches: SizedBatches, accum_grad: int) -> Iterator[list[Batch]]:
    """Micro-batches of each optimizer step: `accum_grad` steps of the loader, what is left at the end of an epoch.

    No batch is taken from the loader before it is needed, so that the loader's state is that of the last list.
    """
    left = len(batches)
    held: list[Batch] = []
    closed = 0
    for batch in batches:
        held.append(batch)
        closed += batch.closes_step
        left -= batch.closes_step
        if batch.closes_step and (closed == accum_grad or left == 0):
            yield held
            held, closed = [], 0


def timed(items: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Each item with the seconds that were spent waiting for it."""
    iterator = iter(items)
    while True:
        began = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item, time.perf_counter() - began
