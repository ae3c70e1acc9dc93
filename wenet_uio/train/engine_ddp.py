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
    the other ranks. The first two steps exchange gradients after their backward passes, because the
    buckets change until then.
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

    @property
    def exchanges_meanwhile(self) -> bool:
        """False in the first steps, see above."""
        return not isinstance(self.synced, DistributedDataParallel) or self.exchange.steady

    def end_exchange(
        self, batch: Batch, of_all: Mapping[str, torch.Tensor], *, broken_off: bool
    ) -> None:
        """Complete the exchange of gradients.

        In the first steps, an empty batch exchanges them. Zeros complete an exchange that was
        broken off.
        """
        if not self.exchanges_meanwhile:
            self._backward(emptied(batch), of_all, last=True)
        elif broken_off and isinstance(self.synced, DistributedDataParallel):
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
