"""`scheduler` and `scheduler_conf`: the keys of each schedule of the learning rate."""

from __future__ import annotations

from pydantic import model_validator

from wenet_uio.config.base import (
    AboveZero,
    NotNegative,
    Positive,
    PositiveShare,
    Probability,
    Section,
    ZeroOrMore,
)

WARM_UPS = 20
"""Length of WarmupLR in times of its warm-up, if the time ends a run: the rate is at 22 % of its highest
then."""
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

    max_steps: Positive
    """Optimizer step from which the rate is `min_lr`."""
    warmup_steps: NotNegative = 0
    min_lr: ZeroOrMore = 0.0

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

    warmup_steps: NotNegative
    hold_steps: NotNegative
    decay_steps: Positive
    init_lr_scale: Probability = 0.01
    """Factor of the rate in the first step of the rise."""
    final_lr_scale: PositiveShare = 0.01
    """Factor of the rate from the end of the fall on."""

    @property
    def end(self) -> int:
        """Optimizer step from which the rate stays as it is."""
        return self.warmup_steps + self.hold_steps + self.decay_steps + 1


class EdenConf(Schedule):
    """The rate falls with the root of both the step and the epoch (Yao et al. 2023, section
    3.5).
    """

    lr_batches: AboveZero = 7500.0
    """Optimizer steps around which the rate begins to fall."""
    lr_epochs: AboveZero = 3.5
    """Epochs around which the rate begins to fall."""
    warmup_batches: NotNegative = 500
    """Optimizer steps of a linear warm-up."""
    warmup_start: PositiveShare = 0.5
    """Factor of the rate in the first step of the warm-up."""


class WarmupLrConf(Schedule):
    """The rate rises linearly during the warm-up, then falls with the inverse square root of the
    step.
    """

    warmup_steps: NotNegative = 25000
    """Optimizer steps; 0: the rate falls from the first step."""

    @property
    def usual_end(self) -> int | None:
        """WARM_UPS warm-ups. So a run with a very large `max_epoch`, which its time ends, has a warm-up,
        too.
        """
        return WARM_UPS * self.warmup_steps or None


class NoamHoldAnnealingConf(Schedule):
    """The rate rises, stays constant, then falls with a power of the step.

    Lengths are optimizer steps (`_steps`) or shares of `max_steps` (`_ratio`).
    """

    max_steps: Positive
    """Optimizer step from which the rate is `min_lr`."""
    warmup_steps: Positive | None = None
    warmup_ratio: PositiveShare | None = None
    hold_steps: NotNegative | None = None
    hold_ratio: Probability | None = None
    decay_rate: AboveZero = 0.5
    """Power of the fall; 0.5: inverse square root."""
    min_lr: ZeroOrMore = 0.0

    @model_validator(mode="after")
    def _one_length_each(self) -> NoamHoldAnnealingConf:
        """Raise ValueError if warm-up or hold has two lengths, or both are longer than the run."""
        if self.warmup_steps is not None and self.warmup_ratio is not None:
            raise ValueError("give warmup_steps or warmup_ratio, not both")
        if self.hold_steps is not None and self.hold_ratio is not None:
            raise ValueError("give hold_steps or hold_ratio, not both")

        if self.warmup_steps is None and self.warmup_ratio is None:
            raise ValueError(
                "warmup_steps or warmup_ratio is required: the rate falls relative to the warm-up"
            )

        if self.warmup + self.hold > self.max_steps:
            raise ValueError(
                f"warm-up {self.warmup} and hold {self.hold} are longer than max_steps "
                f"{self.max_steps}"
            )

        return self

    @property
    def end(self) -> int:
        """Optimizer step from which the rate stays as it is."""
        return self.max_steps

    @property
    def warmup(self) -> int:
        """Optimizer steps of the rise."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return max(1, round((self.warmup_ratio or 0) * self.max_steps))

    @property
    def hold(self) -> int:
        """Optimizer steps at the full rate."""
        if self.hold_steps is not None:
            return self.hold_steps
        return round((self.hold_ratio or 0) * self.max_steps)


SCHEDULER_CONFS: dict[str, type[Schedule]] = {
    "warmuplr": WarmupLrConf,
    "NoamHoldAnnealing": NoamHoldAnnealingConf,
    "WarmupCosine": WarmupCosineConf,
    "tri_stage": TriStageConf,
    "eden": EdenConf,
}
"""{name in the yaml: section}."""
