"""Low-rank adaptation (LoRA): small trained additions to the projections of attention (Hu et al.
2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.nn.functional import linear

from wenet_uio.config.train import LoraConf
from wenet_uio.models.attention import MultiHeadedAttention
from wenet_uio.models.dropout import Dropout


class LoraLinear(nn.Linear):
    """x W + scale * (x A) B. B starts at zero, so the untrained layer equals the layer that it
    replaces.
    """

    def __init__(self, base: nn.Linear, conf: LoraConf) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None)
        self.weight, self.bias = base.weight, base.bias
        self.lora_A = nn.Parameter(torch.empty(conf.lora_rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, conf.lora_rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.lora_dropout = Dropout(conf.lora_dropout)
        self.scale = conf.lora_alpha / conf.lora_rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer: (..., in_features) -> (..., out_features)."""
        low = linear(self.lora_dropout(x), self.lora_A)
        return linear(x, self.weight, self.bias) + self.scale * linear(low, self.lora_B)


def is_lora(name: str) -> bool:
    """Tell whether the weight `name` of a state dict is a low-rank weight."""
    return name.endswith((".lora_A", ".lora_B"))


def merge_lora(weights: Mapping[str, torch.Tensor], conf: LoraConf) -> dict[str, torch.Tensor]:
    """Add the low-rank products of a state dict to the weights beside them: the state dict of a
    model without LoRA.

    Raises:
        ValueError: there are no low-rank weights, their rank is not that of `conf`, or there is no
            weight beside them.
    """
    merged = {name: value for name, value in weights.items() if not is_lora(name)}
    layers = [name.removesuffix(".lora_A") for name in weights if name.endswith(".lora_A")]
    if not layers:
        raise ValueError("no low-rank weights to merge: the model was trained without use_lora")

    _refuse_lacking(weights, layers)
    for layer in layers:
        low, high = weights[f"{layer}.lora_A"].double(), weights[f"{layer}.lora_B"].double()
        if len(low) != conf.lora_rank:
            raise ValueError(
                f"{layer}: the rank of its low-rank weights is {len(low)}, lora_rank is "
                f"{conf.lora_rank}"
            )

        weight = merged[f"{layer}.weight"]  # (out, in)
        summed = weight.double() + conf.lora_alpha / conf.lora_rank * high @ low
        merged[f"{layer}.weight"] = summed.to(weight.dtype)

    return merged


def _refuse_lacking(weights: Mapping[str, torch.Tensor], layers: Iterable[str]) -> None:
    """Raise a ValueError if a layer with low-rank weights lacks one of them, or its own weight."""
    for layer in layers:
        for name in (f"{layer}.weight", f"{layer}.lora_B"):
            if name not in weights:
                raise ValueError(
                    f"low-rank weights (LoRA) without the weights that they change: {name} is "
                    "missing; give a file that has both, such as epoch_7.pt of the run"
                )


def add_lora(model: nn.Module, conf: LoraConf) -> None:
    """Replace, in place, the projections `conf.lora_list` of every attention module in `model`.

    Raises:
        ValueError: the model has no such attention.
    """
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadedAttention)]
    if not attentions:
        raise ValueError(
            f"use_lora: {type(model).__name__} has no attention that takes low-rank weights; "
            "train all weights, or keep parts with --freeze_modules"
        )

    for attention in attentions:
        for name in conf.lora_list:
            setattr(attention, name, LoraLinear(getattr(attention, name), conf))
