"""`optim_conf` of ScaledAdam and Muon."""

from __future__ import annotations

from wenet_uio.config.base import AboveZero, Positive, ZeroOrMore
from wenet_uio.config.optimizer import Decay, OptimizerConf


class ScaledAdamConf(OptimizerConf):
    """ScaledAdam (Yao et al. 2023, https://arxiv.org/abs/2310.11230): steps relative to the scale
    of each weight.

    It does not need `grad_clip`, which applies as well: give a large number. It works on one process
    or with `torch_ddp`.
    """

    lr: AboveZero | tuple[AboveZero, ...] = 0.045
    betas: tuple[Decay, Decay] = (0.9, 0.98)
    clipping_scale: AboveZero | None = 2.0
    """Gradients above this multiple of the median norm of the last steps are scaled down to it;
    null: never. The norm counts each gradient times the RMS (root mean square) of its weight."""
    clipping_update_period: Positive = 100
    """Steps between two estimates of the median."""
    scalar_lr_scale: AboveZero = 0.1
    """Factor of the learning rate for the scales of the weights, and for weights of one element."""
    scalar_max: AboveZero = 10.0
    """Largest absolute value of weights of one element."""
    param_min_rms: AboveZero = 1e-5
    """Smallest scale that a step is relative to."""
    param_max_rms: AboveZero = 3.0
    """Largest RMS of a weight."""
    size_update_period: Positive = 4
    """Steps between two changes of the scales."""


class MuonConf(OptimizerConf):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) for the matrices of
    hidden layers, AdamW for the other weights. Both take steps of the size of AdamW's. It works on one
    process or with `torch_ddp`.
    """

    weight_decay: ZeroOrMore = 0.01
    """Each step subtracts learning rate * weight_decay * weight from every weight."""
    momentum: Decay = 0.95
    """Share of the earlier gradients in the average that a step of a matrix follows."""
    ns_steps: Positive = 5
    """Newton-Schulz steps towards an orthogonal matrix."""
