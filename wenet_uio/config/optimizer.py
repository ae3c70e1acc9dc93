"""`optim` and `optim_conf`: the keys of an optimizer, and a record for each name."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import model_validator

from wenet_uio.config.base import AboveZero, BelowOne, Section, ZeroOrMore
from wenet_uio.config.named_code import Loaded, named_record

OPTIMIZERS: dict[str, str] = {
    "adam": "wenet_uio.config.optimizer:ADAM",
    "adamw": "wenet_uio.config.optimizer:ADAMW",
    "scaled_adam": "wenet_uio.addons.optim:SCALED_ADAM",
    "muon": "wenet_uio.addons.optim:MUON",
}
"""{name in the yaml: `module:name` of its OptimizerKind}. Nothing else in the package names an
optimizer."""
Decay = BelowOne


class OptimizerConf(Section):
    """Keys of every optimizer."""

    lr: AboveZero | tuple[AboveZero, ...] = 0.001
    """Learning rate that the schedule multiplies. A list has one rate for each of `modules`, then
    the rate of all other weights."""
    modules: tuple[str, ...] = ()
    """Modules of the model with their own learning rate, such as `encoder.embed`."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: AboveZero = 1e-8

    @model_validator(mode="after")
    def _one_rate_each(self) -> OptimizerConf:
        if len(self.rates) != len(self.modules) + 1:
            raise ValueError(
                f"{len(self.rates)} learning rates for {len(self.modules)} modules: give one rate "
                "for each module, then one for all other weights"
            )
        return self

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates of `modules`, then the rate of all other weights."""
        return self.lr if isinstance(self.lr, tuple) else (self.lr,)


class AdamConf(OptimizerConf):
    """Adam (Kingma and Ba 2014, https://arxiv.org/abs/1412.6980)."""

    weight_decay: ZeroOrMore = 0.0
    """L2 penalty: its gradient is added to the gradient of the loss."""


class AdamWConf(AdamConf):
    """AdamW (Loshchilov and Hutter 2017, https://arxiv.org/abs/1711.05101)."""

    weight_decay: ZeroOrMore | tuple[ZeroOrMore, ...] = 0.01  # pyright: ignore[reportIncompatibleVariableOverride]
    """Each step subtracts learning rate * weight_decay * weight from every weight. A list has one
    decay for each of `modules`, then the decay of all other weights."""

    @model_validator(mode="after")
    def _one_decay_each(self) -> AdamWConf:
        """Raise ValueError if a list of weight decays has not one for each module and one more."""
        decays = self.weight_decay
        if isinstance(decays, tuple) and len(decays) != len(self.modules) + 1:
            raise ValueError(
                f"{len(decays)} weight decays for {len(self.modules)} modules: give one decay for "
                "each module, then one for all other weights"
            )

        return self


@dataclass(frozen=True)
class OptimizerKind:
    """What the package knows about an optimizer. Loading a kind does not load torch."""

    section: type[OptimizerConf]
    """Class of `optim_conf`."""
    build: Loaded
    """`build(model, config, groups, **values)` returns the torch optimizer. The groups have their
    weights and rates; `values` are the keys of `optim_conf` besides `lr` and `modules`."""
    needs_whole_weights: bool = False
    """Whether a step needs the whole of each weight, so that ranks cannot share weights."""


ADAM = OptimizerKind(AdamConf, Loaded("wenet_uio.train.optimizer:build_adam"))
ADAMW = OptimizerKind(AdamWConf, Loaded("wenet_uio.train.optimizer:build_adamw"))


def optimizer_kind(name: str) -> OptimizerKind:
    """Return the kind that `optim: name` means: a name in OPTIMIZERS.

    Raises:
        ConfigError: the kind is of an add-on that was taken away.
        ValueError: the name is unknown.
    """
    return named_record("optim", name, OPTIMIZERS, OptimizerKind)
