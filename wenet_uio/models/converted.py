"""A model of another package in our form: how its files are read, its weights renamed, and the folder
of a model written. No file can run code.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable, Mapping
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
from wenet_uio.models.weights import fill_weights, first_sentence, load_checked

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
        values = _write_files(converted, Path(aside))
        config = parse_config(values, str(folder / TRAIN_CONFIG))
        torch.manual_seed(0)  # untrained weights are the same in each conversion
        model = build_model(config)
        weights = {
            name: weight
            for name, weight in model.state_dict().items()
            if name.startswith(converted.untrained_prefixes)
        }
        weights |= converted.weights
        fill_weights(model, weights, "the converted weights")

        folder.mkdir(parents=True, exist_ok=True)
        save_config(copy_files(config, folder), folder / TRAIN_CONFIG)

    with written_aside(folder / FINAL_WEIGHTS) as file:
        torch.save(model.state_dict(), file)

    return sum(weight.numel() for weight in model.parameters())


def _write_files(converted: Converted, folder: Path) -> dict[str, Any]:
    """Write the files of a model into `folder`; returns the content of train.yaml with their paths."""
    for name, content in converted.files.items():
        (folder / name).write_text(content, encoding="utf-8")

    values = deepcopy(dict(converted.values))
    for section in values.values():
        if not isinstance(section, dict):
            continue
        for key, value in section.items():
            if isinstance(value, str) and value in converted.files:
                section[key] = str(folder / value)

    return values


def rename_weights(
    weights: Mapping[str, torch.Tensor],
    table: Mapping[str, str],
    layers: Mapping[str, int],
    unused: tuple[str, ...],
) -> dict[str, torch.Tensor]:
    """Return weights by our names, in float32.

    Args:
        weights: by the names of the other package.
        table: {their module or weight: ours}; `{}` stands for the number of a layer.
        layers: {beginning of their names: number of layers}, for the entries with `{}`, which
            come once for each layer.
        unused: further names that may be there.

    Raises:
        ValueError: weights are missing or unknown.
    """
    our_names = _expand_layers(table, layers)
    weights_by_our_name: dict[str, torch.Tensor] = {}
    unknown: list[str] = []
    missing = dict.fromkeys(our_names)

    for name, weight in weights.items():
        module, _, parameter = name.rpartition(".")
        if name in our_names:
            weights_by_our_name[our_names[name]] = weight.float()
            missing.pop(name, None)
        elif module in our_names:
            weights_by_our_name[f"{our_names[module]}.{parameter}"] = weight.float()
            missing.pop(module, None)
        elif name not in unused:
            unknown.append(name)

    if unknown:
        raise ValueError(f"unknown weights: {listed(unknown, SHOWN)}")
    if missing:
        raise ValueError(f"weights are missing: {listed(list(missing), SHOWN)}")

    return weights_by_our_name


def _expand_layers(table: Mapping[str, str], layers: Mapping[str, int]) -> dict[str, str]:
    """Return {their name: our name}, in which an entry of the table with `{}` comes once for each
    layer, with its number.
    """
    our_names: dict[str, str] = {}
    for theirs, ours in table.items():
        counts = [count for prefix, count in layers.items() if theirs.startswith(prefix)]
        numbers = [""]
        if "{}" in theirs and counts:
            numbers = [str(number) for number in range(counts[0])]

        for number in numbers:
            our_names[theirs.replace("{}", number)] = ours.replace("{}", number)

    return our_names


def count_layers(weights: Mapping[str, torch.Tensor], stem: str) -> int:
    """Return the number of layers whose weights begin with `stem`, such as `encoder.blocks.`."""
    pattern = re.compile(rf"{re.escape(stem)}(\d+)\.")
    layers = 0
    for name in weights:
        match = pattern.match(name)
        if match:
            layers = max(layers, int(match[1]) + 1)

    return layers


DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
LENGTH_BYTES = 8
"""The first bytes of a file of safetensors, which hold the length of its header."""
MOST_HEADER_BYTES = 100 << 20


def read_safetensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Read all tensors of a file of safetensors: the length of a header, the header (JSON with type,
    shape and place of each tensor), and the tensors. Their memory is that of the file until they are
    changed.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is incomplete or has another format.
    """
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        header_bytes = int.from_bytes(file.read(LENGTH_BYTES), "little")
        first_byte = LENGTH_BYTES + header_bytes  # of the tensors
        if not 2 <= header_bytes <= MOST_HEADER_BYTES or first_byte > size:
            raise ValueError(f"{path}: not a file of safetensors, or incomplete")

        header = file.read(header_bytes)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        _check_places(entries, size - first_byte)
        return {
            name: _read_tensor(content, entry, first_byte, size) for name, entry in entries.items()
        }
    except (
        ArithmeticError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
    ) as error:
        raise ValueError(
            f"{path}: damaged or incomplete ({type(error).__name__}: {error})"
        ) from None


def _check_places(entries: Mapping[str, Any], size: int) -> None:
    """Check that the tensors fill the bytes behind the header, as the package safetensors does: a
    byte that belongs to two tensors or to none was put there by somebody.

    Args:
        entries: of the header, by name.
        size: bytes behind the header.

    Raises:
        ValueError: tensors overlap, or there is a gap before, between or behind them.
    """
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        if first != end:
            what = "a gap before" if first > end else "other tensors in the bytes of"
            raise ValueError(f"{what} {name}: its bytes begin at {first}, expected {end}")
        end = last

    if end != size:
        raise ValueError(f"its tensors have {end} bytes, the file has {size}")


def _read_tensor(content: mmap.mmap, entry: dict[str, Any], start: int, size: int) -> torch.Tensor:
    """Return the tensor that an entry of the header describes.

    Args:
        content: the whole file.
        start: first byte behind the header, from which the offsets of an entry count.
        size: bytes of the file.

    Raises:
        ValueError: the offsets do not fit.
    """
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    first_offset, end_offset = entry["data_offsets"]
    first, end = start + first_offset, start + end_offset
    count = torch.Size(shape).numel()
    is_in_file = start <= first <= end <= size
    if not is_in_file or end - first != count * dtype.itemsize:
        raise ValueError(
            "a tensor ends behind the end of the file, or its size is not that of its shape"
        )

    if not count:  # torch.frombuffer refuses to read nothing
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=first).view(shape)


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


WEIGHTS: dict[str, Callable[[Path], Any]] = {
    "model.safetensors": read_safetensors,
    "pytorch_model.bin": read_checkpoint,
}
"""{name of the weights in a folder of Hugging Face: reads them}."""


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
        path, index = folder / name, folder / f"{name}.index.json"
        if path.is_file():
            return _read_state_dict(path, read)
        if index.is_file():
            return _read_parts(index, read)

    raise FileNotFoundError(
        f"{folder}: no weights in it; expected {' or '.join(WEIGHTS)}, or an index of parts"
    )


def _read_parts(index: Path, read: Callable[[Path], Any]) -> dict[str, torch.Tensor]:
    """Read the weights that stand in several files; their index has {name of a weight: file}.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: a file is damaged, or the index names a file outside of its folder.
    """
    part_by_weight = read_json(index).get("weight_map")
    if not isinstance(part_by_weight, dict) or any(
        Path(str(part)).name != part for part in part_by_weight.values()
    ):
        raise ValueError(f"{index}: expected a weight_map with names of files in this folder")

    weights: dict[str, torch.Tensor] = {}
    for part in sorted(set(part_by_weight.values())):
        weights |= _read_state_dict(index.parent / part, read)

    missing = part_by_weight.keys() - weights.keys()
    if missing:
        raise ValueError(f"{index}: its parts lack {min(missing)}; download the model again")

    return weights


def _read_state_dict(path: Path, read: Callable[[Path], Any]) -> dict[str, torch.Tensor]:
    weights = read(path)
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
