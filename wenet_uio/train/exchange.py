"""Record DDP's exchanges, so that a rank that runs out of memory can complete them."""

# Without `from __future__ import annotations`: DDP reads the annotations of its hook.

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage] # torch has no __all__ there
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

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
