"""Build optimizers by their names in the yaml; save and load optimizer state."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
import torch.distributed as dist

from wenet_uio.base.messages import nearest_name
from wenet_uio.config import Config
from wenet_uio.config.optimizer import optimizer_kind

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


Groups = Sequence[dict[str, Any]]
"""Groups of weights as torch's optimizers take them, each with its `lr`."""


class StateShapes(NamedTuple):
    """What the state of a weight has: {key: shape}."""

    required: Mapping[str, torch.Size]
    optional: Mapping[str, torch.Size]
    """Keys that the optimizer adds in a later step."""


@runtime_checkable
class StatesItsShapes(Protocol):
    """An optimizer whose state is not that of Adam."""

    def state_shapes(self, weight: torch.Tensor) -> StateShapes:
        """Return the shapes of the state of a weight."""
        ...


def build_optimizer(model: torch.nn.Module, config: Config) -> torch.optim.Optimizer:
    """Build the optimizer of the trainable weights, with a group for each module of optim_conf.

    The key `base_lr` of a group has its rate before the schedule.
    """
    conf = config.optim_conf
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    groups = []
    # A weight belongs to the first module that has it; "", the whole model, takes the rest.
    for module, lr in zip((*conf.modules, ""), conf.rates, strict=True):
        members: list[torch.nn.Parameter] = []
        for name in weights_of_modules(model, [module]):
            if name in named:
                members.append(named.pop(name))
        groups.append({"params": members, "lr": lr, "base_lr": lr})

    values = conf.model_dump(exclude={"lr", "modules"})
    decays = values.get("weight_decay")
    if isinstance(decays, tuple):
        values["weight_decay"] = decays[-1]
        for group, decay in zip(groups, decays, strict=True):
            group["weight_decay"] = decay

    groups = [group for group in groups if group["params"]]
    return optimizer_kind(config.optim).build(model, config, groups, **values)


def build_adam(_: torch.nn.Module, __: Config, groups: Groups, **values: Any) -> torch.optim.Adam:
    """Build Adam, see OptimizerKind."""
    return torch.optim.Adam(groups, fused=True, **values)


def build_adamw(_: torch.nn.Module, __: Config, groups: Groups, **values: Any) -> torch.optim.AdamW:
    """Build AdamW, see OptimizerKind."""
    return torch.optim.AdamW(groups, fused=True, **values)


def weights_of_modules(model: torch.nn.Module, modules: Sequence[str]) -> list[str]:
    """Return names of the weights in `modules`, dotted names of modules or weights.

    "" is the whole model.

    Raises:
        ValueError: the model has no such module; the message has the nearest name.
    """
    known = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
    for module in modules:
        if module not in known:
            nearest = nearest_name(module, sorted(known))
            children = ", ".join(name for name, _ in model.named_children())
            hint = f"did you mean {nearest!r}?" if nearest else f"it has {children}"
            raise ValueError(f"the model has no module {module!r}; {hint}")

    names: list[str] = []
    for name, _ in model.named_parameters():
        if any(_is_part(name, module) for module in modules):
            names.append(name)
    return names


def _is_part(name: str, module: str) -> bool:
    return not module or name == module or name.startswith(f"{module}.")


def optimizer_state(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int = 0
) -> dict[str, dict[str, torch.Tensor]]:
    """Return {name of a weight: its complete optimizer state} on the CPU of rank 0.

    Empty on the other ranks.

    Ranks that share weights must call this together.
    """
    state = {
        name: collect_on_rank_0(optimizer.state[weight], rank)
        for name, weight in model.named_parameters()
        if weight in optimizer.state
    }
    return {} if rank else state


def collect_on_rank_0(tensors: Mapping[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """Return complete tensors on the CPU of rank 0; empty on the other ranks.

    Tensors that the ranks share are collected one after the other, so that no device holds more
    than one of them. Ranks that share tensors must call this together.
    """
    gathered: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        complete = _collect_tensor(cast("DTensor", value), rank) if _is_shared(value) else value
        if complete is not None and not rank:
            gathered[name] = complete.cpu()

    return gathered


def _collect_tensor(shared: DTensor, rank: int) -> torch.Tensor | None:
    """Return the complete tensor on the CPU of rank 0; None on the other ranks."""
    mesh, share = shared.device_mesh, shared.to_local()
    assert [placement.is_shard(0) for placement in shared.placements] == [True], (
        "fully_shard shares rows by default"
    )
    # gather() needs blocks of one size, but the last ranks have fewer rows or none.
    rows = -(-shared.size(0) // mesh.size())  # rounded up
    block = share.new_zeros(rows, *shared.shape[1:])
    if share.numel():
        block[: len(share)] = share

    blocks = None if rank else [torch.empty_like(block) for _ in range(mesh.size())]
    dist.gather(block, blocks, group=mesh.get_group())
    if blocks is None:
        return None
    return torch.cat([part.cpu() for part in blocks])[: shared.size(0)]


def load_optimizer_state(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, Mapping[str, torch.Tensor]],
) -> None:
    """Load the result of `optimizer_state`, on any number of ranks.

    Weights that it lacks start without state.

    Raises:
        ValueError: the state is of another optimizer, or of one with other options. A step would
            end the process, or change the weights by values of others.
    """
    for name, weight in model.named_parameters():
        if weight.requires_grad and name in saved:
            _check_state(optimizer, name, weight, saved[name])
            optimizer.state[weight] = {
                key: _copy_shared(value, weight) for key, value in saved[name].items()
            }


def _check_state(
    optimizer: torch.optim.Optimizer,
    name: str,
    weight: torch.Tensor,
    state: Mapping[str, torch.Tensor],
) -> None:
    """Raise a ValueError unless the state of a weight has what the optimizer keeps of it."""
    if isinstance(optimizer, StatesItsShapes):
        shapes = optimizer.state_shapes(weight)
    else:
        of_adam = {"step": torch.Size(), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}
        shapes = StateShapes(of_adam, {})

    problem = ""
    for key, shape in {**shapes.required, **shapes.optional}.items():
        if key not in state and key in shapes.required:
            problem = f"has no {key} of {name}"
        elif key in state and state[key].shape != shape:
            problem = f"has {key} {tuple(state[key].shape)} of {name}, not {tuple(shape)}"

    if problem:
        raise ValueError(
            f"the state of the run {problem}, as {type(optimizer).__name__} needs it: resume with "
            "the optim and the optim_conf with which the run began, or start a new run from its "
            "weights with --checkpoint"
        )


def complete_tensor(value: torch.Tensor) -> torch.Tensor:
    """Return the complete tensor, if each rank holds a part of it.

    Ranks that share it must call this together.
    """
    return cast("DTensor", value).full_tensor() if _is_shared(value) else value


def part_of_rank(value: torch.Tensor) -> torch.Tensor:
    """Return the part that this rank holds: all of it, if ranks do not share the tensor."""
    return cast("DTensor", value).to_local() if _is_shared(value) else value


def _copy_shared(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Copy `value` to the device of `weight`, shared over the ranks as the weight is.

    A value of another shape, such as a step count, is not shared.
    """
    value = value.to(weight.device)
    if _is_shared(weight) and value.shape == weight.shape:
        from torch.distributed.tensor import distribute_tensor

        shared = cast("DTensor", weight)
        return distribute_tensor(value, shared.device_mesh, shared.placements)

    return value.clone()


def _is_shared(value: torch.Tensor) -> bool:
    """Tell whether each rank holds a part.

    The package of DTensor is not imported for this: that takes half a second.
    """
    package = sys.modules.get("torch.distributed.tensor")
    return package is not None and isinstance(value, package.DTensor)
