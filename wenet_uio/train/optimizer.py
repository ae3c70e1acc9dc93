"""Optimizers and learning rates by their names in the yaml."""

from __future__ import annotations

from collections.abc import Callable

import torch

from wenet_uio.config.base import Section
from wenet_uio.config.train import NoamHoldAnnealingConf, TrainKeys, WarmupLrConf

Schedule = Callable[[int], float]
"""Number of an optimizer step, counted from 1 -> its learning rate over that of optim_conf."""


def build_optimizer(model: torch.nn.Module, config: TrainKeys) -> torch.optim.Optimizer:
    """Optimizer over the weights of `model` that want a gradient."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return kinds[config.optim](weights, fused=True, **config.optim_conf.model_dump())


def build_schedule(config: TrainKeys) -> Schedule:
    """The schedule is a pure function of the step: what resumes is the step number."""
    return _SCHEDULES[config.scheduler](config.scheduler_conf, config.optim_conf)


def _warmup(conf: WarmupLrConf, _: Section) -> Schedule:
    """Vaswani et al. 2017, section 5.3, scaled to 1 at the end of the warm-up (ESPnet's and WeNet's WarmupLR)."""
    if not conf.warmup_steps:
        return lambda step: step**-0.5
    return lambda step: conf.warmup_steps**0.5 * min(step**-0.5, step * conf.warmup_steps**-1.5)


def _noam_hold_annealing(conf: NoamHoldAnnealingConf, optim_conf: Section) -> Schedule:
    """Xu et al. 2023, https://arxiv.org/abs/2305.05084, section 4; as NeMo's schedule of that name counts its steps."""
    lowest = conf.min_lr / optim_conf.lr

    def multiple(step: int) -> float:
        done = step - 1
        if done <= conf.warmup:
            return step / (conf.warmup + 1)
        if done < conf.warmup + conf.hold:
            return 1.0
        if done > conf.max_steps:
            return lowest
        return max(lowest, (conf.warmup / (done - conf.hold)) ** conf.decay_rate)

    return multiple


_SCHEDULES = {"warmuplr": _warmup, "NoamHoldAnnealing": _noam_hold_annealing}
