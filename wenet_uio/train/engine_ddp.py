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
    """Gradients are averaged while they are computed.

    A step that memory fails some rank in is made once more by all, with that rank's batch split. That rank completes
    the exchange with zeros, and the losses' sum tells the others: a step that goes well has no exchange more than it
    needs. The first two steps exchange after their backward passes, because the buckets are not known before.
    """

    def wrap(self) -> None:
        if dist.is_initialized():
            # Said of kernels (channels, 1, width), whose gradients lie in memory as they should.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            # Buffers (means of batch norm) are of no account to training; `validate` gives all ranks those of rank 0.
            self.synced = DistributedDataParallel(self.objective, gradient_as_bucket_view=True, broadcast_buffers=False)
            self.exchange = Exchange()
            self.synced.register_comm_hook(None, self.exchange.average)

    @property
    def exchanges_meanwhile(self) -> bool:
        return not isinstance(self.synced, DistributedDataParallel) or self.exchange.steady

    def end_exchange(self, batch: Batch, of_all: Mapping[str, torch.Tensor], *, broken_off: bool) -> None:
        if not self.exchanges_meanwhile:
            self._backward(emptied(batch).to(self.world.device), of_all, last=True)
        elif broken_off and isinstance(self.synced, DistributedDataParallel):
            self.exchange.complete(self.world.device)

    def start_over(self) -> None:
        super().start_over()
        self.synced = self.objective
        gc.collect()  # DDP, whose backward pass may have broken off, is in cycles
        self.wrap()

    def apart(self) -> Any:
        return self.synced.no_sync() if isinstance(self.synced, DistributedDataParallel) else nullcontext()
