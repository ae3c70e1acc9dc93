"""ScaledAdam: Adam whose steps have the scale of the weights, and which learns this scale too.

Yao et al. 2023, https://arxiv.org/abs/2310.11230, section 3.5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wenet_uio.config import Config
from wenet_uio.train.optimizer import Groups, StateShapes

FIRST_ESTIMATES = (10, 20, 40)
"""Steps after which the clipping threshold is estimated before the first `clipping_update_period`
is complete."""
FIRST_ALLOWANCE = 2.0
"""These early thresholds are larger by this factor, because the norms still change quickly."""
TINY = 1e-20
LARGEST_SCALE_STEP = 0.1
"""Bound of a relative change of a scale, which would be large after a gradient far above those
before."""


@dataclass
class _Stack:
    """Weights of one shape and group, computed as one tensor.

    The optimizer's `state` has views of the tensors here.
    """

    weights: list[torch.nn.Parameter]
    group: dict[str, Any]
    step: torch.Tensor
    """() number of steps done."""
    tensors: dict[str, torch.Tensor]
    """delta and exp_avg_sq (N, *shape); with more than one element also param_rms and
    scale_exp_avg_sq (N,) and scale_grads (N, size_update_period)."""
    first_state: dict[str, Any]
    """The state of the first weight, by which a newly loaded state is noticed."""

    @property
    def is_scalar(self) -> bool:
        """True for weights of one element, which have no scale of their own."""
        return self.weights[0].numel() == 1


def build(_: torch.nn.Module, config: Config, groups: Groups, **values: Any) -> ScaledAdam:
    """Return ScaledAdam for the weights of a model, in the groups of its learning rates."""
    return ScaledAdam(groups, lr=config.optim_conf.rates[-1], **values)


class ScaledAdam(torch.optim.Optimizer):
    """Adam with steps relative to the root mean square (RMS) of each weight tensor.

    Each tensor also learns its scale, every `size_update_period` steps. The gradients are clipped:
    the norm of the gradients times the RMS of their weights is at most `clipping_scale` times its
    median over the last steps. Tensors of one element take steps of `lr * scalar_lr_scale`, as in
    Adam. Weights of one shape are computed together.

    The optimizer is of fp32 weights that one rank holds completely.
    """

    def __init__(self, params: Iterable[Any], **values: Any) -> None:
        """Arguments are the keys of ScaledAdamConf, with `lr` one number."""
        super().__init__(params, values)
        self._stacks: list[_Stack] = []

    def state_shapes(self, weight: torch.Tensor) -> StateShapes:
        """Return the shapes of the state of a weight. What is missing, but for the number of steps,
        begins anew.
        """
        group_by_weight = {
            id(member): group for group in self.param_groups for member in group["params"]
        }
        group = group_by_weight[id(weight)]
        optional = {
            "delta": weight.shape,
            "exp_avg_sq": weight.shape,
            "param_rms": torch.Size(),
            "scale_exp_avg_sq": torch.Size(),
            "model_norm_threshold": torch.Size(),
            "scale_grads": torch.Size([group["size_update_period"]]),
            "model_norms": torch.Size([group["clipping_update_period"]]),
        }
        return StateShapes({"step": torch.Size()}, optional)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Change the weights. A weight without gradient has the gradient 0."""
        assert closure is None, "not supported"
        # The state of weights is views of the tensors of stacks. A loaded state is none.
        is_loaded = any(
            self.state.get(stack.weights[0]) is not stack.first_state for stack in self._stacks
        )
        if is_loaded or not self._stacks:
            self._stacks = []
            for group in self.param_groups:
                self._stacks += self._stack_group(group)

        for group in self.param_groups:
            self._step_group([stack for stack in self._stacks if stack.group is group])

    def _step_group(self, stacks: Sequence[_Stack]) -> None:
        """Change the weights of a group, whose gradients are clipped together."""
        grads: list[torch.Tensor] = []
        for stack in stacks:
            grads.append(torch.stack([_gradient_or_zero(weight) for weight in stack.weights]))

        factor = self._clipping_factor(stacks, grads)
        for stack, grad in zip(stacks, grads, strict=True):
            if factor is not None:
                grad.mul_(factor)
            values = torch.stack([weight.detach() for weight in stack.weights])
            _step_stack(stack, values, grad)
            for weight, value in zip(stack.weights, values.unbind(), strict=True):
                weight.copy_(value)

    def _stack_group(self, group: dict[str, Any]) -> list[_Stack]:
        """Stack the weights of a group by shape, with the state that they have."""
        alike: defaultdict[Any, list[torch.nn.Parameter]] = defaultdict(list)
        for weight in group["params"]:
            steps_done = int(self.state[weight]["step"]) if self.state.get(weight) else 0
            alike[weight.shape, weight.device, steps_done].append(weight)

        stacks: list[_Stack] = []
        for (_, _, steps_done), weights in alike.items():
            stacks.append(self._stack_weights(weights, group, steps_done))
        return stacks

    def _stack_weights(
        self, weights: list[torch.nn.Parameter], group: dict[str, Any], steps_done: int
    ) -> _Stack:
        """Stack weights that have done the same number of steps. Their state becomes views of the
        stacked tensors; what it had is kept.
        """
        values = torch.stack([weight.detach() for weight in weights])
        tensors = {"delta": torch.zeros_like(values), "exp_avg_sq": torch.zeros_like(values)}
        if weights[0].numel() > 1:
            rms = _root_mean_square(values)
            tensors |= {"param_rms": rms, "scale_exp_avg_sq": torch.zeros_like(rms)}
            tensors["scale_grads"] = rms.new_zeros(len(weights), group["size_update_period"])

        step = torch.tensor(float(steps_done))
        for row, weight in enumerate(weights):
            saved = self.state[weight]
            for key, tensor in tensors.items():
                if key in saved:
                    tensor[row] = saved[key]

            views = {key: tensor[row] for key, tensor in tensors.items()}
            # The first weight of a group has the norms of the group for clipping.
            norms = {key: value for key, value in saved.items() if key.startswith("model_norm")}
            self.state[weight] = {"step": step, **views, **norms}

        return _Stack(weights, group, step, tensors, self.state[weights[0]])

    def _clipping_factor(
        self, stacks: Sequence[_Stack], grads: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        """Return the factor () by which the gradients of a group are multiplied; None: 1.

        The state of the first weight of the group has the norms of the last steps.
        """
        group, first_state = stacks[0].group, stacks[0].first_state
        steps_done = int(stacks[0].step)
        scale, period = group["clipping_scale"], group["clipping_update_period"]
        if scale is None or steps_done == 0:  # the first step has no norms before it
            return None

        squares = [
            _relative_sum_of_squares(stack, grad) for stack, grad in zip(stacks, grads, strict=True)
        ]
        norm = torch.stack(squares).sum().sqrt()
        if "model_norms" not in first_state:
            first_state["model_norms"] = norm.new_zeros(period)

        norms = first_state["model_norms"]
        norms[steps_done % period] = norm
        median = _norm_median(norms, steps_done)
        if median is not None:
            first_state["model_norm_threshold"] = median * scale

        threshold = first_state.get("model_norm_threshold")
        if threshold is None:
            return None
        return (threshold / (norm + TINY)).clamp(max=1.0)


def _norm_median(norms: torch.Tensor, steps_done: int) -> torch.Tensor | None:
    """Return the median () of the last norms (period,), with the allowance.

    None if it is not estimated after this number of steps.
    """
    period = len(norms)
    is_early = steps_done in FIRST_ESTIMATES and steps_done < period
    is_end_of_period = steps_done % period == 0
    if not is_early and not is_end_of_period:
        return None

    ordered = norms.sort().values
    if is_early:  # the norms that are still missing are zeros, which come first
        ordered = ordered[-steps_done:]

    # As in icefall: twice a quarter of their number, which is the middle for multiples of 4.
    middle = len(ordered) // 4 * 2
    median = ordered[min(len(ordered) - 1, middle)]
    return median * (FIRST_ALLOWANCE if is_early else 1.0)


def _gradient_or_zero(weight: torch.nn.Parameter) -> torch.Tensor:
    """Return the gradient of a weight; zeros if it has none."""
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _root_mean_square(values: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each of N tensors (N, *shape) -> (N,)."""
    return values.flatten(1).square().mean(dim=1).sqrt()


def _broadcast_numbers(numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return numbers (N,) as (N, 1, ...), a shape that multiplies values (N, *shape)."""
    ones = [1] * (values.dim() - 1)
    return numbers.view(-1, *ones)


def _relative_sum_of_squares(stack: _Stack, grad: torch.Tensor) -> torch.Tensor:
    """Return the sum () of the squares of the gradients, each times the RMS of its weight.

    The RMS of a scalar says nothing: `scalar_lr_scale` takes its place, as in icefall.
    """
    if stack.is_scalar:
        return grad.square().sum() * stack.group["scalar_lr_scale"] ** 2
    squares = grad.flatten(1).square().sum(dim=1)  # (N,)
    return (squares * stack.tensors["param_rms"].square()).sum()


def _step_stack(stack: _Stack, values: torch.Tensor, grad: torch.Tensor) -> None:
    """Change `values` (N, *shape) of a stack by gradients of the same shape, in place.

    `delta`, the running average of the steps, is added to the values.
    """
    group, delta, steps_done = stack.group, stack.tensors["delta"], int(stack.step)
    beta1, beta2 = group["betas"]
    delta.mul_(beta1)
    if not stack.is_scalar:
        _learn_scale(stack, values, grad)

    squares = stack.tensors["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    filled = 1 - beta2 ** (steps_done + 1)  # share of the average that gradients have filled
    # Afterwards the correction is below 1 %, and is left out.
    if filled < 0.99 or stack.is_scalar:
        squares = squares / filled

    change = grad / squares.sqrt().add_(group["eps"])
    if stack.is_scalar:
        delta.add_(change, alpha=-group["lr"] * group["scalar_lr_scale"] * (1 - beta1))
        values.clamp_(-group["scalar_max"], group["scalar_max"])
    else:
        scale = stack.tensors["param_rms"].clamp(min=group["param_min_rms"])
        delta.addcmul_(change, _broadcast_numbers(scale, change), value=-group["lr"] * (1 - beta1))

    values.add_(delta)
    stack.step.add_(1)


def _learn_scale(stack: _Stack, values: torch.Tensor, grad: torch.Tensor) -> None:
    """Record the gradient of each tensor's scale, its root mean square (RMS).

    At the end of a period, add a step of the scales to `delta`, the running average of the steps.
    """
    group, tensors, steps_done = stack.group, stack.tensors, int(stack.step)
    period = group["size_update_period"]
    beta1, beta2 = group["betas"]
    # The gradient of a factor of a tensor is the product of the tensor and its gradient.
    tensors["scale_grads"][:, steps_done % period] = (values * grad).flatten(1).sum(dim=1)
    if steps_done % period != period - 1:
        return

    rms = tensors["param_rms"].copy_(_root_mean_square(values))
    if steps_done == 0:
        return

    # As Adam, of one number for each tensor: squares and change are (N,).
    decay = beta2**period
    squares = tensors["scale_exp_avg_sq"]
    squares.mul_(decay).add_(tensors["scale_grads"].square().mean(dim=1), alpha=1 - decay)
    filled = 1 - decay ** ((steps_done + 1) // period)  # share of the average that is no zero
    rate = -group["lr"] * group["scalar_lr_scale"] * filled**0.5
    change = rate * tensors["scale_grads"].sum(dim=1) / (squares.sqrt() + group["eps"])
    change.clamp_(-LARGEST_SCALE_STEP, LARGEST_SCALE_STEP)
    change.masked_fill_(rms < group["param_min_rms"], 0.0)
    change_to_largest = (group["param_max_rms"] - rms) / rms
    change = torch.minimum(change, change_to_largest)
    tensors["delta"].addcmul_(values, _broadcast_numbers(change, values), value=1 - beta1)
