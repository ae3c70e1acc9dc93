"""The engine that the config names, and torch_ddp: every rank holds the whole model
(DistributedDataParallel).
"""

# Without `from __future__ import annotations`: DDP reads the annotations of its hook.

import gc
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage] # torch has no __all__ there
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from wenet_uio.config import Config
from wenet_uio.dataset.types import Batch
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.micro_batches import emptied_batch

STEADY = 2
"""Backward passes after which the gradient buckets no longer change: DDP reorders them after the
first pass."""


class Exchange:
    """A communication hook that averages gradients as DDP does, and records the bucket shapes.

    Each gradient bucket is one exchange, and all ranks make the exchanges in the same order. A rank
    that runs out of memory in its backward pass stops in the middle of them, while the other ranks
    wait for the rest.
    """

    def __init__(self) -> None:
        self.passes = 0
        """Complete backward passes."""
        self._buckets: list[torch.Tensor] = []
        """Empty tensors (meta device) with the shapes of the buckets of the last complete pass."""
        self._sent: list[tuple[torch.Tensor, torch.futures.Future]] = []

    @property
    def steady(self) -> bool:
        """True if the buckets are final, so that `complete` knows them."""
        return self.passes >= STEADY

    def average(self, _: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket over the ranks; the hook of DDP."""
        assert dist.group.WORLD is not None
        future = allreduce_hook(dist.group.WORLD, bucket)
        self._sent.append((torch.empty_like(bucket.buffer(), device="meta"), future))

        if bucket.is_last():
            self._buckets = [sent for sent, _ in self._sent]
            self._sent = []
            self.passes += 1

        return future

    def complete(self, device: torch.device) -> None:
        """Send zeros for the remaining buckets of an interrupted pass.

        The other ranks wait for these buckets.
        """
        for _, future in self._sent:
            future.wait()
        for bucket in self._buckets[len(self._sent) :]:
            dist.all_reduce(torch.zeros_like(bucket, device=device))
        self._sent = []


class DdpEngine(Engine):
    """Averages gradients over the ranks while they are computed.

    If a rank runs out of memory, all ranks repeat the step, and that rank splits its batch. The
    rank completes the exchange with zeros. In each step the hosts exchange one number, which tells
    the other ranks.

    DDP changes its buckets after the first backward pass. With three or more ranks the place of a
    gradient in its bucket decides the order in which its parts are added, and so its last bits. So
    passes without utterances settle the buckets before the first step of each start: a resumed run
    then takes the same bits as one that went on.
    """

    def wrap(self) -> None:
        """Wrap the objective in DistributedDataParallel if there are several ranks."""
        if not dist.is_initialized():
            return

        # The warning is about kernels (channels, 1, width), whose gradients have the right strides.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        # Training does not need equal buffers (means of batch norm); `validate` copies those of
        # rank 0 to all.
        self.synced = DistributedDataParallel(
            self.objective, gradient_as_bucket_view=True, broadcast_buffers=False
        )
        self.exchange = Exchange()
        self.synced.register_comm_hook(None, self.exchange.average)

    def settle_exchange(self, batch: Batch, of_all: Mapping[str, torch.Tensor]) -> None:
        """Exchange gradients of 0 until the buckets no longer change."""
        if not isinstance(self.synced, DistributedDataParallel) or self.exchange.steady:
            return

        while not self.exchange.steady:
            self._backward_pass(emptied_batch(batch), of_all, last=True)
        self.optimizer.zero_grad(set_to_none=True)

    def complete_exchange(self) -> None:
        """Send zeros for the gradients that the other ranks wait for."""
        if isinstance(self.synced, DistributedDataParallel):
            self.exchange.complete(self.world.device)

    def start_over(self) -> None:
        """Discard the gradients and create DistributedDataParallel again.

        Its last backward pass may be incomplete.
        """
        super().start_over()
        self.synced = self.objective
        gc.collect()  # the old DDP object is part of reference cycles
        self.wrap()

    def without_exchange(self) -> Any:
        """Return a context in which backward passes do not exchange gradients."""
        if isinstance(self.synced, DistributedDataParallel):
            return self.synced.no_sync()
        return nullcontext()


DEEPSPEED_CONFIG = Path(__file__).with_name("ds_stage2.json")
"""DeepSpeed's config with ZeRO stage 2."""


def build_engine(
    model: TrainableModel,
    config: Config,
    world: World,
    seed: int,
    deepspeed_config: str | Path = DEEPSPEED_CONFIG,
) -> Engine:
    """Build the engine that `config.train_engine` names; `Engine.connect` is the next call.

    Args:
        deepspeed_config: json file; used by the engine deepspeed only.

    Raises:
        ValueError: the engine does not support this config, or deepspeed is not installed.
        OSError: the json file cannot be read.
    """
    if config.train_engine == "torch_fsdp":
        from wenet_uio.train.engine_fsdp import FsdpEngine  # slow to import

        return FsdpEngine(model, config, world, seed)

    if config.train_engine == "deepspeed":
        from wenet_uio.train.engine_deepspeed import DeepspeedEngine

        return DeepspeedEngine(model, config, world, seed, deepspeed_config)

    return DdpEngine(model, config, world, seed)
