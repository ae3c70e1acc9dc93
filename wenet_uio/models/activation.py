"""Activation functions, by the names that the yaml uses."""

from __future__ import annotations

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "swish": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "hardtanh": nn.Hardtanh,
    "selu": nn.SELU,
}
