"""Reading model weights from checkpoints and copying them into models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from wenet_uio.cli import listed
from wenet_uio.models.lora import is_lora


def _first_sentence(error: Exception) -> str:
    """torch explains at length."""
    return str(error).split("\n")[0].split(". ")[0] or type(error).__name__


def load_weights(model: torch.nn.Module, path: str | Path, *, new_lora: bool = False) -> None:
    """Fill `model` from a state dict such as epoch_N.pt; `new_lora`: which may have none of the model's LoRA weights.

    Raises:
        ValueError: not a state dict, or not one of this model.
    """
    weights = read_weights(path)
    if new_lora and not any(map(is_lora, weights)):
        weights |= {name: value for name, value in model.state_dict().items() if is_lora(name)}
    fill(model, weights, str(path))


def load_parts(model: torch.nn.Module, path: str | Path, modules: Sequence[str]) -> int:
    """Fill some modules of `model`, given by their dotted names, from a state dict; how many weights that were.

    Raises:
        ValueError: the file has nothing of a module, or not of this model's.
    """
    weights, wanted = read_weights(path), model.state_dict()
    for module in modules:
        prefix = f"{module}."
        part = {name: value for name, value in weights.items() if name.startswith(prefix)}
        if not part:
            tops = ", ".join(sorted({name.split(".")[0] for name in weights}))
            raise ValueError(f"{path}: nothing of {module!r} in it; it has {tops}")
        rest = {name: value for name, value in wanted.items() if not name.startswith(prefix)}
        fill(model, rest | part, f"{module} of {path}")
        wanted = model.state_dict()
    return sum(name.startswith(tuple(f"{module}." for module in modules)) for name in wanted)


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """Read a plain state dict onto the CPU.

    Raises:
        OSError: the file cannot be read. ValueError: it is something else.
    """
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        # torch raises RuntimeError, UnpicklingError, EOFError and more for what is not a whole file.
        raise ValueError(f"{path}: not the weights of a model ({type(error).__name__})") from None
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise ValueError(f"{path}: expected a plain state dict, found {type(weights).__name__}")
    return weights


def fill(model: torch.nn.Module, weights: Mapping[str, torch.Tensor], source: str) -> None:
    """Load a state dict that came from `source`.

    Raises:
        ValueError: it is not one of this model, naming what differs.
    """
    wanted = model.state_dict()
    problems = [
        *(f"{name} is missing" for name in wanted if name not in weights),
        *(f"{name} is not in the model" for name in weights if name not in wanted),
        *(
            f"{name} is {tuple(weights[name].shape)}, the model has {tuple(value.shape)}"
            for name, value in wanted.items()
            if name in weights and weights[name].shape != value.shape
        ),
    ]
    if problems:
        raise ValueError(f"{source}: not the weights of this model: {listed(problems, 3, '; ')}")
    model.load_state_dict(weights)
