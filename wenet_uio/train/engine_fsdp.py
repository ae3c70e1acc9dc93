"""torch_fsdp: every rank holds a share of weights, gradients and optimizer state (fully_shard)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from wenet_uio.train.engine import Engine
from wenet_uio.train.layers import layers_of, make_contiguous


class FsdpEngine(Engine):
    """Gathers the weights of a layer only while the layer runs.

    Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054, stage 3.
    """

    @property
    def in_step(self) -> bool:
        """True with several ranks: each pass of a layer is an exchange."""
        return self.world.size > 1

    def wrap(self) -> None:
        """Share each layer, and the rest of the model, over the ranks.

        Raises:
            ValueError: fully_shard cannot share a weight of this model.
        """
        if self.world.size == 1:
            return

        scalars = [name for name, weight in self.model.named_parameters() if not weight.dim()]
        if scalars:
            raise ValueError(
                f"train_engine torch_fsdp cannot share {scalars[0]}, a single number: use torch_ddp"
            )

        mesh = init_device_mesh(self.world.device.type, (self.world.size,))
        # Weights and gradients are exchanged in fp32, and autocast chooses the types of operations,
        # as with torch_ddp. An exchange in 16 bits would also round the weights of norms and
        # embeddings, which autocast computes in fp32.
        policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
        make_contiguous(self.model)
        for layer in (*layers_of(self.model), self.model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)

    @contextmanager
    def without_exchange(self) -> Iterator[None]:
        """Return a context in which backward passes do not exchange gradients."""
        if not isinstance(self.model, FSDPModule):
            yield
            return

        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)
