"""Model weights on disk: read a state dict such as epoch_N.pt, and copy all or some of the weights
into a model.

A file of weights is a plain state dict ({name: tensor}), as `torch.save(model.state_dict(), path)`
writes it. Files are read with `weights_only=True`, so a file cannot run code. The file is a zip
archive with a CRC-32 of each part, which torch ignores; it is compared here. Every function checks
names and shapes before it changes the model.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from wenet_uio.base.messages import listed
from wenet_uio.models.lora import is_lora

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

log = logging.getLogger(__name__)
NAMED = 3
"""Differences that an error message lists."""
KINDS = {
    ("model", "optimizer", "progress"): "the state from which a run resumes",
    ("param_groups", "state"): "the state of an optimizer",
}
"""{keys of a dict that is no plain state dict: what it is}."""
ADVICE = "give weights such as avg.pt, final.pt or epoch_7.pt of a run"
TEXT_HEAD = 1024
"""Characters that tell whether a file is a text."""


def load_weights(
    model: torch.nn.Module,
    path: str | Path,
    *,
    new_lora: bool = False,
    lora: str | Path | None = None,
) -> None:
    """Copy all weights of a state dict into `model`.

    Args:
        model: the model, changed in place.
        path: file of weights, such as epoch_N.pt.
        lora: file of low-rank weights (LoRA) that belong to those of `path`.
        new_lora: accept a file without low-rank (LoRA) weights; those of the model stay as they
            are.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a state dict, or has weights of another model.
    """
    weights = read_weights(path) | (read_lora(lora) if lora else {})
    if new_lora and not any(map(is_lora, weights)):
        weights |= {name: value for name, value in model.state_dict().items() if is_lora(name)}
    fill_weights(model, weights, str(path))


def load_parts(model: torch.nn.Module, path: str | Path, modules: Sequence[str]) -> int:
    """Copy the weights of some modules from a state dict into `model`.

    Args:
        model: the model, changed in place.
        path: file of weights.
        modules: names of modules in `model`, such as `encoder.embed`.

    Returns:
        The number of weights copied.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a state dict, has no weights of a module, or other weights than
            the module.
    """
    weights, weights_of_model = read_weights(path), model.state_dict()
    for module in modules:
        prefix = f"{module}."
        copied = {name: weight for name, weight in weights.items() if name.startswith(prefix)}
        if not copied:
            tops = ", ".join(sorted({name.split(".")[0] for name in weights}))
            raise ValueError(f"{path}: no weights of {module!r}; the file has {tops}")

        kept = {
            name: weight for name, weight in weights_of_model.items() if not name.startswith(prefix)
        }
        fill_weights(model, kept | copied, f"{module} of {path}")
        weights_of_model = model.state_dict()

    prefixes = tuple(f"{module}." for module in modules)
    return sum(name.startswith(prefixes) for name in weights_of_model)


def read_lora(path: str | Path) -> dict[str, torch.Tensor]:
    """Read a file of low-rank weights (LoRA) alone, as `average_model.py --only_lora` writes it.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a state dict, or has other weights.
    """
    weights = read_weights(path)
    others = [name for name in weights if not is_lora(name)]
    if others or not weights:
        raise ValueError(
            f"{path}: expected low-rank weights (LoRA) alone, found {others[0] if others else 'none'}; "
            "average_model.py --only_lora writes such a file"
        )
    return weights


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """Read a plain state dict onto the CPU.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a state dict, is damaged, or has values that are infinite or no
            numbers.
    """
    try:
        weights = load_checked(path)
    except OSError:
        raise
    except DamagedError as error:
        raise ValueError(
            f"{path}: {error}; restore the file from a copy, or take another epoch"
        ) from None
    except Exception as error:
        # torch raises RuntimeError, UnpicklingError, EOFError and more for a file that is truncated
        # or no checkpoint.
        what = "a text" if _is_text(path) else f"{type(error).__name__}"
        raise ValueError(f"{path}: not the weights of a model ({what}); {ADVICE}") from None

    if not _is_state_dict(weights):
        raise ValueError(
            f"{path}: expected a plain state dict, found {_describe_content(weights)}; {ADVICE}"
        )

    refuse_nonfinite(weights, path)
    log.debug("%s: %d weights read", path, len(weights))
    return weights


def _is_text(path: str | Path) -> bool:
    """Tell whether a file begins with characters of UTF-8 that a text has."""
    with open(path, encoding="utf-8") as file:
        try:
            head = file.read(TEXT_HEAD)
        except UnicodeDecodeError:
            return False

    return bool(head) and all(char.isprintable() or char.isspace() for char in head)


def _is_state_dict(content: Any) -> bool:
    """Tell whether a file has tensors by name, at least one."""
    if not isinstance(content, dict) or not content:
        return False
    return all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in content.items()
    )


def _describe_content(content: Any) -> str:
    """Say what a file has that holds no plain state dict."""
    if not isinstance(content, dict):
        return type(content).__name__
    if not content:
        return "an empty dict"

    for keys, what in KINDS.items():
        if content.keys() >= set(keys):
            return what

    nested = [name for name, value in content.items() if _is_state_dict(value)]
    return f"a dict with a state dict under {nested[0]!r}" if nested else "dict"


class SpoiltError(ValueError):
    """Numbers in a file are infinite or NaN."""


def refuse_nonfinite(
    weights: Mapping[str, torch.Tensor], path: str | Path, advice: str = "take an earlier epoch"
) -> None:
    """Raise a SpoiltError if a weight has a value that is infinite or no number."""
    spoilt = [
        name
        for name, value in weights.items()
        if value.is_floating_point() and not bool(value.isfinite().all())
    ]
    if spoilt:
        raise SpoiltError(
            f"{path}: values of {spoilt[0]} are no numbers (NaN) or infinite, and so are those of "
            f"{len(spoilt) - 1} more of {len(weights)} tensors: the training had diverged; {advice}"
        )


class DamagedError(ValueError):
    """The content of a file is not what was written."""


class _Source(io.FileIO):
    """A file that keeps the last error of the system: zipfile and torch report it as damage."""

    failure: OSError | None = None

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read into a buffer; returns the number of bytes."""
        try:
            return super().readinto(buffer)
        except OSError as error:
            self.failure = error
            raise

    def readall(self) -> bytes | None:
        """Read up to the end."""
        try:
            return super().readall()
        except OSError as error:
            self.failure = error
            raise


def load_checked(path: str | Path) -> Any:
    """Load a file of `torch.save` onto the CPU, after a comparison of its content with its
    checksums.

    Files in the format of torch before 1.6 have no checksums and are loaded without a comparison.

    Raises:
        OSError: the file cannot be read, or memory runs out. The file may be whole.
        DamagedError: a checksum does not match.
        Exception: torch raises errors of many types for a file that is incomplete or no checkpoint.
    """
    content, failure = None, None
    with _Source(str(path)) as source:
        try:
            content = _load_open_file(io.BufferedReader(source))
        except Exception as error:
            if source.failure is None and not _is_out_of_memory(error):
                if isinstance(error, OSError):  # of a seek to a place that a damaged file names
                    raise DamagedError(f"damaged ({error})") from None
                raise
            failure = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        # An error of the system is what happened, whatever torch said of it, or if it said nothing.
        failure = source.failure or failure
        if failure is not None:
            raise OSError(failure.errno, failure.strerror, str(path)) from None

    return content


def _load_open_file(file: BinaryIO) -> Any:
    """Load an open file; see `load_checked`."""
    if zipfile.is_zipfile(file):
        try:
            with zipfile.ZipFile(file) as parts:
                damaged = parts.testzip()
        except MemoryError:
            raise
        except Exception as error:  # of many types, if the directory of the archive is damaged
            raise DamagedError(f"damaged ({error})") from None
        if damaged:
            raise DamagedError(f"damaged: the checksum of its part {damaged} does not match")

    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


def _is_out_of_memory(error: Exception) -> bool:
    """Tell whether an allocation on the CPU failed."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def first_sentence(error: Exception) -> str:
    """Return the first sentence of an error message, or the type of an error without message.

    The messages of `torch.load` continue with several lines of advice.
    """
    return str(error).split("\n")[0].split(". ")[0] or type(error).__name__


def is_table(name: str) -> bool:
    """Tell whether a buffer is a table of positions."""
    return name.endswith(".pe")


def fill_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor], source: str) -> None:
    """Copy a complete state dict into `model`; error messages begin with `source`, the origin of
    the weights.

    Raises:
        ValueError: names or shapes differ from the model; the message lists the differences.
    """
    model_weights = model.state_dict()
    # Tables of positions are computed; WeNet's checkpoints have them since March 2024.
    tables = {name: value for name, value in model.named_buffers() if is_table(name)}
    weights = tables | dict(weights)

    problems = [f"{name} is missing" for name in model_weights if name not in weights]
    problems += [f"{name} is not in the model" for name in weights if name not in model_weights]
    for name, weight in model_weights.items():
        if name in weights and weights[name].shape != weight.shape:
            problems.append(
                f"{name} is {tuple(weights[name].shape)}, the model has {tuple(weight.shape)}"
            )

    if problems:
        raise ValueError(
            f"{source}: not the weights of this model: {listed(problems, NAMED, '; ')}"
        )

    model.load_state_dict(weights)
