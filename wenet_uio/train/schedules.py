"""Build learning rate schedules by their names in the yaml."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from wenet_uio.config.optimizer import OptimizerConf
from wenet_uio.config.schedules import (
    EdenConf,
    NoamHoldAnnealingConf,
    TriStageConf,
    WarmupCosineConf,
    WarmupLrConf,
)
from wenet_uio.config.train import TrainKeys

Schedule = Callable[[float, float], float]
"""Number of an optimizer step, from 1, and number of completed epochs -> factor of the learning
rates in optim_conf. With `max_hours`, a run may be between two steps of its schedule."""


def build_schedule(config: TrainKeys) -> Schedule:
    """Build the schedule, a pure function of step and epoch.

    So a resumed run needs no state of it.
    """
    if isinstance(config.scheduler_conf, EdenConf):
        return _eden_schedule(config.scheduler_conf)
    factor_of_step = _SCHEDULES[config.scheduler](config.scheduler_conf, config.optim_conf)
    return lambda step, _: factor_of_step(step)


def _eden_schedule(conf: EdenConf) -> Schedule:
    """Return the schedule Eden (Yao et al. 2023, https://arxiv.org/abs/2310.11230, equation 8).

    Steps are counted as in icefall, from 0.
    """

    def multiple(step: float, epoch: float) -> float:
        """Return the factor of the learning rates; it decays with the steps and with the epochs."""
        done = step - 1
        warmup = 1.0
        if conf.warmup_batches:
            rise = (1.0 - conf.warmup_start) * done / conf.warmup_batches
            warmup = min(1.0, conf.warmup_start + rise)

        decay_by_steps = ((done / conf.lr_batches) ** 2 + 1.0) ** -0.25
        decay_by_epochs = ((epoch / conf.lr_epochs) ** 2 + 1.0) ** -0.25
        return decay_by_steps * decay_by_epochs * warmup

    return multiple


def _warmup_schedule(conf: WarmupLrConf, _: OptimizerConf) -> Callable[[float], float]:
    """Return WarmupLR of ESPnet and WeNet: Vaswani et al. 2017, section 5.3.

    It is scaled to 1 at the end of the warm-up.
    """

    def multiple(step: float) -> float:
        if not conf.warmup_steps:
            return step**-0.5
        return conf.warmup_steps**0.5 * min(step**-0.5, step * conf.warmup_steps**-1.5)

    return multiple


def _noam_hold_annealing(
    conf: NoamHoldAnnealingConf, optim_conf: OptimizerConf
) -> Callable[[float], float]:
    """Return NoamHoldAnnealing (Xu et al. 2023, https://arxiv.org/abs/2305.05084, section 4).

    Steps are counted as in NeMo.
    """
    lowest = conf.min_lr / optim_conf.rates[-1]

    def multiple(step: float) -> float:
        done = step - 1
        if done <= conf.warmup:
            return step / (conf.warmup + 1)
        if done < conf.warmup + conf.hold:
            return 1.0
        if done > conf.max_steps:
            return lowest

        return max(lowest, (conf.warmup / (done - conf.hold)) ** conf.decay_rate)

    return multiple


def _warmup_cosine(conf: WarmupCosineConf, optim_conf: OptimizerConf) -> Callable[[float], float]:
    """Return WarmupCosine: a linear rise to 1, then half a cosine down to min_lr / lr.

    The factor is 1 at the end of the warm-up and lowest from max_steps on.
    """
    lowest = conf.min_lr / optim_conf.rates[-1]

    def multiple(step: float) -> float:
        if step <= conf.warmup_steps:
            return step / conf.warmup_steps
        progress = min(1.0, (step - conf.warmup_steps) / (conf.max_steps - conf.warmup_steps))
        return lowest + (1.0 - lowest) * 0.5 * (1.0 + math.cos(math.pi * progress))

    return multiple


def _tri_stage(conf: TriStageConf, _: OptimizerConf) -> Callable[[float], float]:
    """Return tri_stage: linear rise, constant, exponential fall.

    Steps are counted as in fairseq, from 0.
    """

    def multiple(step: float) -> float:
        done = step - 1
        if done < conf.warmup_steps:
            return conf.init_lr_scale + (1.0 - conf.init_lr_scale) * done / conf.warmup_steps

        falling = min(max(0, done - conf.warmup_steps - conf.hold_steps), conf.decay_steps)
        return conf.final_lr_scale ** (falling / conf.decay_steps)

    return multiple


_SCHEDULES: Mapping[str, Callable[..., Callable[[float], float]]] = {
    "warmuplr": _warmup_schedule,
    "NoamHoldAnnealing": _noam_hold_annealing,
    "WarmupCosine": _warmup_cosine,
    "tri_stage": _tri_stage,
}
"""Schedules that depend on the step alone."""
