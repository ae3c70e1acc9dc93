"""A device that stands in for an accelerator: tensors on it report another device, and compute on
the CPU.

A copy to the host, a number read by the host, and a copy to the device without `non_blocking` are
counted, because an accelerator makes the host wait for them. A tensor of the host beside tensors of
the device is an error, as it is there.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from wenet_uio.models import ASRModel

DEVICE = torch.device("meta")
"""Autograd runs the operations of this device in the thread of the CPU."""
TAKES_LENGTHS = {"aten::_ctc_loss": 2, "aten::_ctc_loss_backward": 0}
"""Operations with lengths on the host, and how many of them are copied there by the operation if
they are not."""
PACKS = "aten::_pack_padded_sequence"
"""An operation whose lengths, and whose second result, are on the host for every device."""
COPIES = ("aten::copy_", "aten::_foreach_copy_", "aten::_to_copy")


class OnDevice(torch.Tensor):
    """A tensor of the device; `host` has its values."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnDevice:
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(
            cls, host.shape, **layout, dtype=host.dtype, device=DEVICE
        )

    def __init__(self, host: torch.Tensor) -> None:
        self.host = host

    # torch documents this; its stub has another signature.
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {}, Counter())

    def tolist(self) -> Any:
        return self.cpu().tolist()  # torch has no tolist of subclasses


class StandIn(TorchDispatchMode):
    """Computes what is on the device, and counts in `waits` for what the host waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {}, self.waits)


def run(func: Any, args: Any, kwargs: dict[str, Any], waits: Counter[str]) -> Any:
    """Run an operation on the values of its tensors; tensors of the device give tensors of the
    device.
    """
    tensors: list[torch.Tensor] = []
    each_tensor(tensors.append, (args, kwargs))
    known = {id(each.host): each for each in tensors if isinstance(each, OnDevice)}
    name, asked = func._schema.name, kwargs.get("device")
    if not known and asked != DEVICE:
        return func(*args, **kwargs)
    if name == "aten::_fused_sdp_choice":
        return 0  # the kernel that every device has
    if name == "aten::_local_scalar_dense" or (name in COPIES and to_host(args, asked)):
        waits[name] += 1
    elif name in COPIES and to_device(args, asked) and not leaves_at_once(args, kwargs):
        waits[f"{name} to the device"] += 1
    elif name in TAKES_LENGTHS:
        waits[name] += sum(
            isinstance(each, OnDevice) for each in tensors[2 : 2 + TAKES_LENGTHS[name]]
        )
    elif known and name not in (*COPIES, PACKS):
        strangers = [
            each.shape for each in tensors if not isinstance(each, OnDevice) and each.dim()
        ]
        assert not strangers, (
            f"{name} has tensors of the host beside tensors of the device: {strangers}"
        )
    on_host, options = each_tensor(
        lambda each: each.host if isinstance(each, OnDevice) else each, (args, kwargs)
    )
    if asked is not None:
        options["device"] = torch.device("cpu")
    results = func(*on_host, **options)
    if name == "aten::_to_copy" and asked is not None and asked != DEVICE:
        return results
    if name == PACKS:
        return OnDevice(results[0]), results[1]
    return each_tensor(
        lambda each: known[id(each)] if id(each) in known else OnDevice(each), results
    )


def each_tensor(function: Callable[[torch.Tensor], Any], values: Any) -> Any:
    """The values with the result of `function` in place of each tensor; torch's tree_map takes
    twice the time.
    """
    if isinstance(values, torch.Tensor):
        return function(values)
    if isinstance(values, (tuple, list)):
        return type(values)([each_tensor(function, each) for each in values])
    if isinstance(values, dict):
        return {name: each_tensor(function, each) for name, each in values.items()}
    return values


def to_host(args: Any, asked: torch.device | None) -> bool:
    """True if a copy is from the device to the host."""
    if asked is not None:
        return asked != DEVICE
    return len(args) > 1 and not isinstance(args[0], OnDevice) and isinstance(args[1], OnDevice)


def to_device(args: Any, asked: torch.device | None) -> bool:
    """True if a copy is from the host to the device; a single number is part of the launch of an
    operation.
    """
    if asked is not None:
        return asked == DEVICE and not isinstance(args[0], OnDevice)
    pair = len(args) > 1 and isinstance(args[0], OnDevice) and isinstance(args[1], torch.Tensor)
    return pair and not isinstance(args[1], OnDevice) and args[1].dim() > 0


def leaves_at_once(args: Any, kwargs: dict[str, Any]) -> bool:
    """True if a copy is `non_blocking`, which may be the third argument of copy_."""
    return bool(kwargs.get("non_blocking", len(args) > 2 and args[2]))


def moved(model: ASRModel) -> ASRModel:
    """Move a model to the device."""
    done: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if id(weight) not in done:
                done[id(weight)] = nn.Parameter(
                    OnDevice(weight.detach()), requires_grad=weight.requires_grad
                )
            setattr(module, name, done[id(weight)])
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, OnDevice(buffer))
    return model


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """A block in which `DEVICE` computes."""
    with pytest.MonkeyPatch.context() as patch, StandIn() as device:
        # torch's list of the devices with fused optimizers
        module = importlib.import_module("torch.optim.optimizer")
        patch.setattr(module, "_get_fused_kernels_supported_devices", lambda: ["cpu", DEVICE.type])
        # Knows no such device; what is on the device computes in its own type
        autocast = torch.autocast
        patch.setattr(
            torch,
            "autocast",
            lambda kind, *args, **keys: autocast(kind.replace(DEVICE.type, "cpu"), *args, **keys),
        )
        yield device
