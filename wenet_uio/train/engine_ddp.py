"""torch_ddp: every rank holds the whole model (DistributedDataParallel)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from wenet_uio.dataset.types import Batch
from wenet_uio.train.engine import Engine
from wenet_uio.train.exchange import Exchange
from wenet_uio.train.micro_batches import emptied


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
            self._backward(emptied(batch), of_all, last=True)
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

    def apart(self) -> Any:
        """As Engine.apart."""
        if isinstance(self.synced, DistributedDataParallel):
            return self.synced.no_sync()
        return nullcontext()
