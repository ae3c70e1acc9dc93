"""Low-rank adapters (LoRA) of the package PEFT for a Whisper of Hugging Face, merged with their base."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from wenet_uio.models.converted import read_checkpoint, read_json, read_safetensors

ADAPTER_CONFIG = "adapter_config.json"
WEIGHTS = {"adapter_model.safetensors": read_safetensors, "adapter_model.bin": read_checkpoint}
"""{name of the weights of an adapter: reads them}."""
PREFIX = "base_model.model."
"""What the names of an adapter have before those of the base."""
LOW_RANK = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")
"""Name of a low-rank weight: module of the base, and A or B."""


def is_adapter(path: Path) -> bool:
    """Tell whether `path` is the folder of an adapter of a Whisper."""
    if not (path / ADAPTER_CONFIG).is_file():
        return False

    base = str(read_json(path / ADAPTER_CONFIG).get("base_model_name_or_path"))
    folder = base_folder(path, base)
    if folder is None:
        return "whisper" in base.lower()
    return read_json(folder / "config.json").get("model_type") == "whisper"


def base_folder(path: Path, base: str) -> Path | None:
    """Return the folder of a base model, absolute or relative to the adapter; None if there is none."""
    folder = path / base
    return folder if (folder / "config.json").is_file() else None


def read_base(path: Path) -> Path:
    """Return the folder of the base model of an adapter.

    Raises:
        ValueError: the folder of the base is not there.
    """
    base = str(read_json(path / ADAPTER_CONFIG).get("base_model_name_or_path"))
    folder = base_folder(path, base)
    if folder is None:
        raise ValueError(
            f"{path}: an adapter of {base}, whose folder is not there: download the base model, and "
            f"write its folder under base_model_name_or_path in {ADAPTER_CONFIG}"
        )
    return folder


def merge_adapter(path: Path, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of a base model with those of an adapter.

    Args:
        path: folder of the adapter.
        weights: of the base, by the names of Hugging Face.

    Raises:
        OSError: the weights of the adapter are missing or cannot be read.
        ValueError: the adapter is of another kind than LoRA, or does not fit the base.
    """
    conf = read_json(path / ADAPTER_CONFIG)
    if conf.get("peft_type") != "LORA" or conf.get("use_dora"):
        kind = "DoRA" if conf.get("use_dora") else conf.get("peft_type")
        raise ValueError(f"{path}: an adapter of the kind {kind}; only LoRA can be merged")

    merged = dict(weights)
    factors: dict[str, dict[str, torch.Tensor]] = {}
    for full_name, weight in _read_adapter_weights(path).items():
        name = full_name.removeprefix(PREFIX)
        match = LOW_RANK.fullmatch(name)
        if match:
            factors.setdefault(match[1], {})[match[2]] = weight.float()
        elif _is_like(weight, merged.get(name)):
            merged[name] = weight  # of a module that was trained whole
        else:
            raise ValueError(f"{path}: {full_name} does not fit a weight of the base model")

    for module, pair in factors.items():
        name = f"{module}.weight"
        base = merged.get(name)
        if base is None or not _do_fit(base, pair):
            raise ValueError(f"{path}: the low-rank weights of {module} do not fit the base model")
        down, up = pair["A"], pair["B"]
        merged[name] = base.float() + _scale(conf, module, down.size(0)) * up @ down

    return merged


def _do_fit(base: torch.Tensor, pair: Mapping[str, torch.Tensor]) -> bool:
    """Tell whether the product of two low-rank weights has the shape of a weight of the base."""
    if set(pair) != {"A", "B"}:
        return False
    down, up = pair["A"], pair["B"]
    if not up.dim() == down.dim() == 2 or up.size(1) != down.size(0):
        return False
    return base.shape == (up.size(0), down.size(1))


def _is_like(weight: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and weight.shape == other.shape


def _scale(conf: Mapping[str, Any], module: str, rank: int) -> float:
    """Return the factor of the product of the low-rank weights of a module."""
    alpha = conf.get("lora_alpha", 8)
    for pattern, of_pattern in (conf.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            alpha = of_pattern
            break
    return float(alpha) / (math.sqrt(rank) if conf.get("use_rslora") else rank)


def _read_adapter_weights(path: Path) -> dict[str, torch.Tensor]:
    for name, read in WEIGHTS.items():
        if (path / name).is_file():
            return read(path / name)
    raise FileNotFoundError(f"{path}: no weights in it; expected {' or '.join(WEIGHTS)}")
