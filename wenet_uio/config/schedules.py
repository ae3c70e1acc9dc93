"""Keys of learning rate schedules that WeNet does not have: `scheduler: WarmupCosine` and
`scheduler: tri_stage`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from wenet_uio.config.base import Section

Steps = Annotated[int, Field(ge=0)]
BEYOND_ANY_RUN = 100_000_000
"""Steps that no run takes."""


class Schedule(Section):
    """Keys of a schedule of the learning rate."""

    @property
    def end(self) -> int | None:
        """Optimizer step from which the rate stays as it is; None: it changes in every step."""
        return None

    @property
    def usual_end(self) -> int | None:
        """Optimizer step at which a run that its time ends has taken the whole schedule; None: its
        last step.
        """
        return self.end


class WarmupCosineConf(Schedule):
    """The rate rises linearly, then falls along half a cosine (Loshchilov and Hutter 2016,
    https://arxiv.org/abs/1608.03983, without restarts).
    """

    max_steps: Annotated[int, Field(gt=0)]
    """Optimizer step from which the rate is `min_lr`."""
    warmup_steps: Steps = 0
    min_lr: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _falls(self) -> WarmupCosineConf:
        if self.warmup_steps >= self.max_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} is not below max_steps {self.max_steps}"
            )
        return self

    @property
    def end(self) -> int:
        """Optimizer step from which the rate stays as it is."""
        return self.max_steps


class TriStageConf(Schedule):
    """The rate rises linearly, stays constant, then falls exponentially (Park et al. 2019,
    https://arxiv.org/abs/1904.08779, section 4.2). Names are fairseq's.
    """

    warmup_steps: Steps
    hold_steps: Steps
    decay_steps: Annotated[int, Field(gt=0)]
    init_lr_scale: float = Field(default=0.01, ge=0, le=1)
    """Factor of the rate in the first step of the rise."""
    final_lr_scale: float = Field(default=0.01, gt=0, le=1)
    """Factor of the rate from the end of the fall on."""

    @property
    def end(self) -> int:
        """Optimizer step from which the rate stays as it is."""
        return self.warmup_steps + self.hold_steps + self.decay_steps + 1
