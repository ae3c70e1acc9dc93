"""Muon: a step of a matrix has equal singular values; the other weights take steps of AdamW.

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. The size of the steps is that of Liu et
al. 2025, https://arxiv.org/abs/2502.16982, section 2.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.adamw import adamw

from wenet_uio.config import Config
from wenet_uio.train.optimizer import Groups, StateShapes

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Jordan's: of x, x³ and x⁵ in a Newton-Schulz step. Five steps take singular values from 0.001 to 1
to about 0.7 to 1.2."""
STEP_RMS = 0.2
"""Root mean square of a step at a learning rate of 1: about that of AdamW's steps (Liu et al.)."""


def build(model: nn.Module, config: Config, groups: Groups, **values: Any) -> Muon:
    """Return Muon for the weights of a model, in the groups of its learning rates."""
    matrices = hidden_matrices(model, config.vocabulary_size)
    dtype = torch.bfloat16 if config.dtype == "bf16" else torch.float32
    return Muon(groups, matrices, dtype, lr=config.optim_conf.rates[-1], **values)


def hidden_matrices(model: nn.Module, units: int | None) -> list[torch.Tensor]:
    """Return the weights of linear layers and convolutions that mix hidden values.

    Layers with `units` outputs are left out, and depthwise convolutions; so are embeddings and
    recurrent layers.
    """
    matrices: list[torch.Tensor] = []
    for layer in model.modules():
        if not isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            continue
        if not isinstance(layer, nn.Linear) and layer.groups > 1:  # depthwise, or in groups
            continue

        weight = layer.weight
        is_output = len(weight) == units
        is_vector = min(flatten_inputs(weight).shape) == 1
        if not is_output and not is_vector:
            matrices.append(weight)

    return matrices


class Muon(torch.optim.Optimizer):
    """Momentum whose steps of matrices are made orthogonal, and AdamW for the other weights.

    Both decay the weights as AdamW does. Matrices of one shape are computed together. A
    convolution is the matrix of its outputs by all its inputs. The optimizer is of fp32 weights
    that one rank holds completely.
    """

    def __init__(
        self,
        params: Iterable[Any],
        matrices: Sequence[torch.Tensor],
        dtype: torch.dtype = torch.float32,
        **values: Any,
    ) -> None:
        """Make the optimizer.

        Args:
            matrices: the weights that take orthogonal steps; see `hidden_matrices`.
            dtype: arithmetic of the products that make a step orthogonal.
            values: keys of MuonConf, with `lr` one number.
        """
        super().__init__(params, values)
        self._matrices = {id(matrix) for matrix in matrices}
        self._dtype = dtype

    def state_shapes(self, weight: torch.Tensor) -> StateShapes:
        """Return the shapes of the state of a weight after its first step."""
        if id(weight) in self._matrices:
            return StateShapes({"momentum_buffer": weight.shape}, {})

        shapes = {"step": torch.Size(), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}
        return StateShapes(shapes, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Change the weights that have a gradient."""
        assert closure is None, "not supported"
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            matrices = [weight for weight in weights if id(weight) in self._matrices]
            others = [weight for weight in weights if id(weight) not in self._matrices]
            self._step_matrices(matrices, group)
            self._step_others(others, group)

    def _step_matrices(self, matrices: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        """Change matrices by orthogonal steps; those of one shape are computed together."""
        alike: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            alike[flatten_inputs(matrix).shape].append(matrix)

        for shape, members in alike.items():
            averages = torch.stack(  # (members, *shape)
                [self._average_gradient(matrix, group["momentum"]) for matrix in members]
            )
            steps = orthogonal_matrices(averages.to(self._dtype), group["ns_steps"])
            # The RMS of an orthogonal matrix is 1 / sqrt(its longer side).
            size = group["lr"] * STEP_RMS * max(shape) ** 0.5
            for matrix, step in zip(members, steps, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(step.to(matrix.dtype).reshape(matrix.shape), alpha=-size)

    def _average_gradient(self, matrix: nn.Parameter, momentum: float) -> torch.Tensor:
        """Return the average of the gradients, ahead by one step (Nesterov), as a matrix."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)

        average = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
        return flatten_inputs(matrix.grad.lerp(average, momentum))

    def _step_others(self, weights: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        """Change the other weights by steps of AdamW."""
        if not weights:
            return

        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "step": torch.zeros((), device=weight.device),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }

        states = [self.state[weight] for weight in weights]
        adamw(
            list(weights),
            [weight.grad for weight in weights if weight.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def orthogonal_matrices(matrices: torch.Tensor, steps: int) -> torch.Tensor:
    """Return matrices (N, rows, columns) with the same singular vectors and values near 1.

    The values are made so by Newton-Schulz steps, without a decomposition. The product of such a
    matrix with its transpose is smaller if the matrix has fewer rows than columns.
    """
    if matrices.size(1) > matrices.size(2):
        return orthogonal_matrices(matrices.mT, steps).mT

    a, b, c = COEFFICIENTS
    # No singular value is above the norm, so that all are now between 0 and 1.
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT  # (N, rows, rows)
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # b gram + c gram gram
        x = torch.baddbmm(x, factor, x, beta=a)  # a x + factor x

    return x


def flatten_inputs(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight (outputs, *inputs) as a matrix (outputs, inputs)."""
    return weight.flatten(1)
