"""Learning rate schedules with a warm-up, as functions of the optimizer step (from 1)."""

from __future__ import annotations

import math
from collections.abc import Callable

from wenet_uio.config.schedules import TriStageConf, WarmupCosineConf


def warmup_cosine(conf: WarmupCosineConf, base_lr: float) -> Callable[[int], float]:
    """Return WarmupCosine: a linear rise to 1, then half a cosine down to min_lr / base_lr.

    The factor is 1 at the end of the warm-up and lowest from max_steps on.
    """
    lowest = conf.min_lr / base_lr

    def multiple(step: int) -> float:
        if step <= conf.warmup_steps:
            return step / conf.warmup_steps
        done = min(1.0, (step - conf.warmup_steps) / (conf.max_steps - conf.warmup_steps))
        return lowest + (1.0 - lowest) * 0.5 * (1.0 + math.cos(math.pi * done))

    return multiple


def tri_stage(conf: TriStageConf) -> Callable[[int], float]:
    """Return the factor of the rate; steps are counted as in fairseq, from 0."""

    def multiple(step: int) -> float:
        done = step - 1
        if done < conf.warmup_steps:
            return conf.init_lr_scale + (1.0 - conf.init_lr_scale) * done / conf.warmup_steps

        falling = min(max(0, done - conf.warmup_steps - conf.hold_steps), conf.decay_steps)
        return conf.final_lr_scale ** (falling / conf.decay_steps)

    return multiple
