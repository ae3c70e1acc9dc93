"""What DistributedDataParallel exchanges in a backward pass, noted down so that a rank that breaks off can go on."""

# No annotations from the future: DDP looks at those of its hook.

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

STEADY = 2
"""Backward passes after which the buckets of gradients stay as they are: DDP sorts them anew after the first."""


class Exchange:
    """A communication hook that sends what DDP would, and remembers what that is.

    Each bucket of gradients is one exchange, and the ranks make them in the same order. A rank without memory for its
    backward pass stops somewhere among them while the others wait for the rest.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._buckets: list[torch.Tensor] = []
        """Of the last whole pass, empty, on the meta device."""
        self._sent: list[tuple[torch.Tensor, torch.futures.Future]] = []

    @property
    def steady(self) -> bool:
        """Whether `complete` knows what is to be sent."""
        return self.passes >= STEADY

    def average(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket over the ranks."""
        future = allreduce_hook(None, bucket)
        self._sent.append((torch.empty_like(bucket.buffer(), device="meta"), future))
        if bucket.is_last():
            self._buckets = [sent for sent, _ in self._sent]
            self._sent = []
            self.passes += 1
        return future

    def complete(self, device: torch.device) -> None:
        """Send zeros for what the others still wait for, in a pass that broke off."""
        for _, future in self._sent:
            future.wait()
        for bucket in self._buckets[len(self._sent) :]:
            dist.all_reduce(torch.zeros_like(bucket, device=device))
        self._sent = []
