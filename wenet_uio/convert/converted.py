"""A converted model: the content of its train.yaml and its weights, and how both become a folder of
a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import listed
from wenet_uio.base.run_files import FINAL_WEIGHTS, TRAIN_CONFIG
from wenet_uio.config import parse_config, save_config
from wenet_uio.config.named_files import copy_files
from wenet_uio.models import build_model
from wenet_uio.models.weights import fill

SHOWN = 3
"""Weights that an error message lists."""


@dataclass(frozen=True)
class Converted:
    """A model in our form."""

    values: Mapping[str, Any]
    """Content of the train.yaml; paths of units and vocabulary are those of the source."""
    weights: Mapping[str, torch.Tensor]
    """Weights by our names. Those of parts that the source does not have are missing."""
    untrained_prefixes: tuple[str, ...] = ()
    """Beginnings of the names of weights that the source does not have; these weights get the
    values of an untrained model."""
    notes: tuple[str, ...] = field(default=())
    """What a user should know, a line each."""
    files: Mapping[str, str] = field(default_factory=dict)
    """{name: content} of files that the train.yaml names and that the source has in another
    form."""


def write_model(converted: Converted, folder: Path) -> int:
    """Write train.yaml, final.pt and the files that the train.yaml names.

    Returns:
        the number of weights of the model.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the weights are not those of the model that the train.yaml describes.
    """
    with TemporaryDirectory() as aside:
        values = _with_files(converted, Path(aside))
        config = parse_config(values, str(folder / TRAIN_CONFIG))
        torch.manual_seed(0)  # untrained weights are the same in each conversion
        model = build_model(config)
        untrained = {
            name: weight
            for name, weight in model.state_dict().items()
            if name.startswith(converted.untrained_prefixes)
        }
        fill(model, untrained | dict(converted.weights), "the converted weights")

        folder.mkdir(parents=True, exist_ok=True)
        save_config(copy_files(config, folder), folder / TRAIN_CONFIG)

    with written_aside(folder / FINAL_WEIGHTS) as file:
        torch.save(model.state_dict(), file)

    return sum(weight.numel() for weight in model.parameters())


def _with_files(converted: Converted, folder: Path) -> dict[str, Any]:
    """Write the files of a model into `folder`; returns the content of train.yaml with their paths."""
    for name, content in converted.files.items():
        (folder / name).write_text(content, encoding="utf-8")

    values = deepcopy(dict(converted.values))
    for section in values.values():
        for key, value in section.items() if isinstance(section, dict) else ():
            if isinstance(value, str) and value in converted.files:
                section[key] = str(folder / value)

    return values


def renamed(
    weights: Mapping[str, torch.Tensor],
    table: Mapping[str, str],
    layers: Mapping[str, int],
    unused: tuple[str, ...],
) -> dict[str, torch.Tensor]:
    """Return weights by our names, in float32.

    Args:
        weights: by the names of the other package.
        table: {their module or weight: ours}; `{}` stands for the number of a layer.
        layers: {beginning of their names: number of layers}, for the entries with `{}`.
        unused: further names that may be there.

    Raises:
        ValueError: weights are missing or unknown.
    """
    modules = dict(_numbered(table, layers))
    weights_by_our_name: dict[str, torch.Tensor] = {}
    unknown, seen = [], set()

    for name, weight in weights.items():
        module, _, parameter = name.rpartition(".")
        if name in modules:
            weights_by_our_name[modules[name]] = weight.float()
            seen.add(name)
        elif module in modules:
            weights_by_our_name[f"{modules[module]}.{parameter}"] = weight.float()
            seen.add(module)
        elif name not in unused:
            unknown.append(name)

    if unknown:
        raise ValueError(f"unknown weights: {listed(unknown, SHOWN)}")
    if missing := [module for module in modules if module not in seen]:
        raise ValueError(f"weights are missing: {listed(missing, SHOWN)}")

    return weights_by_our_name


def _numbered(table: Mapping[str, str], layers: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return (their name, our name) of a table; an entry with `{}` comes once for each layer."""
    pairs: list[tuple[str, str]] = []
    for theirs, ours in table.items():
        counts = [count for prefix, count in layers.items() if theirs.startswith(prefix)]
        numbers = map(str, range(counts[0])) if "{}" in theirs and counts else [""]
        pairs += [(theirs.replace("{}", number), ours.replace("{}", number)) for number in numbers]

    return pairs


def layers_in(weights: Mapping[str, torch.Tensor], stem: str) -> int:
    """Return the number of layers whose weights begin with `stem`, such as `encoder.blocks.`."""
    numbers = [
        int(match[1]) for name in weights if (match := re.match(rf"{re.escape(stem)}(\d+)\.", name))
    ]
    return max(numbers, default=-1) + 1
