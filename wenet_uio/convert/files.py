"""Files of models of other packages: weights and JSON, with one-line errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wenet_uio.convert.safetensors import read_safetensors
from wenet_uio.models.weights import first_sentence, load_checked

WEIGHTS: dict[str, Callable[[Path], Any]] = {
    "model.safetensors": read_safetensors,
    "pytorch_model.bin": load_checked,
}
"""{name of the weights in a folder of Hugging Face: reads them}."""


def read_checkpoint(path: Path) -> Any:
    """Read a file of `torch.save` with `weights_only`, so that the file cannot run code.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged, or has more than tensors and plain values.
    """
    try:
        return load_checked(path)
    except OSError:
        raise
    except Exception as error:  # torch raises errors of many types
        raise ValueError(
            f"{path}: no checkpoint that is safe to load ({first_sentence(error)})"
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has another content.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON ({error})") from None

    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(values).__name__}")

    return values


def read_folder_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a folder of Hugging Face: one file, or the parts that an index names.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is damaged.
    """
    for name, read in WEIGHTS.items():
        if (folder / name).is_file():
            return _tensors(folder / name, read)
        index = folder / f"{name}.index.json"
        if index.is_file():
            weights: dict[str, torch.Tensor] = {}
            part_by_weight = _part_of_weights(index)
            for part in sorted(set(part_by_weight.values())):
                weights |= _tensors(folder / part, read)

            if missing := part_by_weight.keys() - weights.keys():
                raise ValueError(
                    f"{index}: its parts lack {min(missing)}; download the model again"
                )

            return weights
    raise FileNotFoundError(
        f"{folder}: no weights in it; expected {' or '.join(WEIGHTS)}, or an index of parts"
    )


def _part_of_weights(index: Path) -> dict[str, str]:
    """Return {name of a weight: file that holds it}.

    Raises:
        ValueError: the index does not state it, or names a file outside of its folder.
    """
    file_of = read_json(index).get("weight_map")
    if not isinstance(file_of, dict) or any(
        Path(str(file)).name != file for file in file_of.values()
    ):
        raise ValueError(f"{index}: expected a weight_map with names of files in this folder")
    return file_of


def _tensors(path: Path, read: Callable[[Path], Any]) -> dict[str, torch.Tensor]:
    weights = read(path) if read is read_safetensors else read_checkpoint(path)
    check_state_dict(path, weights)
    return weights


def check_state_dict(path: Path, weights: object) -> None:
    """Raise a ValueError if `weights`, which stood in the file `path`, are no tensors by name, or
    not all finite.
    """
    if not isinstance(weights, dict):
        raise ValueError(f"{path}: expected a state dict, found {type(weights).__name__}")

    for name, weight in weights.items():
        if not isinstance(name, str) or not isinstance(weight, torch.Tensor):
            raise ValueError(
                f"{path}: expected tensors by name, found {type(weight).__name__} under {name!r}"
            )
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise ValueError(
                f"{path}: {name} has values that are infinite or NaN; download the model again"
            )
