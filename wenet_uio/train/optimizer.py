"""Optimizers and learning rates by their names in the yaml, and what an optimizer remembers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from wenet_uio.config.base import Section
from wenet_uio.config.train import NoamHoldAnnealingConf, TrainKeys, WarmupLrConf

Schedule = Callable[[int], float]
"""Number of an optimizer step, counted from 1 -> its learning rate over that of optim_conf."""


def build_optimizer(model: torch.nn.Module, config: TrainKeys) -> torch.optim.Optimizer:
    """Optimizer over the weights of `model` that want a gradient, in groups with a `base_lr` each."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    conf = config.optim_conf
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    groups = []
    for module, lr in zip((*conf.modules, ""), conf.rates, strict=True):
        members = [named.pop(name) for name in parts_of(model, [module]) if name in named]
        groups.append({"params": members, "lr": lr, "base_lr": lr})
    values = conf.model_dump(exclude={"lr", "modules"})
    return kinds[config.optim]([group for group in groups if group["params"]], fused=True, **values)


def parts_of(model: torch.nn.Module, modules: Sequence[str]) -> list[str]:
    """Names of the weights of some modules given by their dotted names; "" is the whole model.

    Raises:
        ValueError: the model has no such module, naming the nearest.
    """
    known = [name for name, _ in model.named_modules()] + [name for name, _ in model.named_parameters()]
    for module in modules:
        if module not in known:
            nearest = difflib.get_close_matches(module, known, n=1, cutoff=0.5)
            hint = (
                f"did you mean {nearest[0]!r}?"
                if nearest
                else f"it has {', '.join(n for n, _ in model.named_children())}"
            )
            raise ValueError(f"the model has no module {module!r}; {hint}")
    return [
        name
        for name, _ in model.named_parameters()
        if any(not module or name == module or name.startswith(f"{module}.") for module in modules)
    ]


def optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, torch.Tensor]]:
    """What the optimizer remembers of each weight, by name, whole. A joint act of ranks that share weights."""
    named = {name: optimizer.state[weight] for name, weight in model.named_parameters() if weight in optimizer.state}
    return {name: {key: whole(value) for key, value in memory.items()} for name, memory in named.items()}


def load_optimizer_state(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Mapping[str, torch.Tensor]]
) -> None:
    """Take up what `optimizer_state` gave, on any number of ranks; weights that it does not name start afresh."""
    for name, weight in model.named_parameters():
        if weight.requires_grad and name in saved:
            optimizer.state[weight] = {key: _dealt(value, weight) for key, value in saved[name].items()}


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor of which every rank may hold a part."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _dealt(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`value` where `weight` is, in the same parts if it has its shape."""
    value = value.to(weight.device)
    if isinstance(weight, DTensor) and value.shape == weight.shape:
        return distribute_tensor(value, weight.device_mesh, weight.placements)
    return value.clone()


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
    lowest = conf.min_lr / optim_conf.rates[-1]

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
