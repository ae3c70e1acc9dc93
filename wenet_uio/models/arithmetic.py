"""The type of the arithmetic of a model: fp32, or 16 bits by automatic mixed precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import torch

from wenet_uio.base.messages import warn_once

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""{name: type that autocast takes, or None}."""
PROCESSORS = Path("/proc/cpuinfo")


def autocast(device: torch.device, dtype: str) -> AbstractContextManager:
    """Return a context in which matrix products of fp32 weights are computed in `dtype`, a name of
    AUTOCAST.
    """
    if AUTOCAST[dtype] is None:
        return nullcontext()
    return torch.autocast(device.type, AUTOCAST[dtype])


def dtype_for(dtype: str, device: torch.device) -> str:
    """Replace `auto` by bf16 if `device` computes faster with it, else fp32; warn of a slower bf16.

    With `auto`, a GPU computes products that stay in fp32 in TF32.
    """
    if dtype == "bf16" and not gains_by_bf16(device):
        warn_once(f"dtype bf16: this {device.type} computes faster in fp32; dtype auto does so")

    if dtype != "auto":
        return dtype

    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
    return "bf16" if gains_by_bf16(device) else "fp32"


def gains_by_bf16(device: torch.device) -> bool:
    """Tell whether a device computes faster in bf16 than in fp32.

    The type of a CPU decides, not a measurement: runs and texts must not depend on the load of the
    machine.
    """
    if not has_bf16(device):
        return False
    return device.type != "cpu" or _cpu_gains()


def has_bf16(device: torch.device) -> bool:
    """Tell whether a device has instructions for bf16; others emulate it slowly."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # The public functions of torch name the vector width only.
    return device.type == "cpu" and getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()


@cache
def _cpu_gains() -> bool:
    """Tell whether this CPU, which has AVX512-BF16, multiplies matrices faster in bf16: one of AMD, or
    with AMX.

    With AVX512-BF16 alone, processors of Intel are slower in bf16 (lab/benchmark/train_step.md).
    """
    has_amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    return has_amx or "AuthenticAMD" in PROCESSORS.read_text(encoding="utf-8")
