"""The type of the arithmetic of a model: fp32, or 16 bits by automatic mixed precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from wenet_uio.cli import warn_once

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""{name: type that autocast takes, or None}."""


def autocast(device: torch.device, dtype: str) -> AbstractContextManager:
    """A context in which matrix products of fp32 weights are computed in `dtype`, a name of AUTOCAST."""
    return nullcontext() if AUTOCAST[dtype] is None else torch.autocast(device.type, AUTOCAST[dtype])


def dtype_for(dtype: str, device: torch.device) -> str:
    """Replace `auto` by bf16 if `device` computes with it, else fp32; warn of emulated bf16.

    With `auto`, a GPU computes products that stay in fp32 in TF32.
    """
    if dtype == "bf16" and not computes_bf16(device):
        warn_once(f"dtype bf16: this {device.type} has no instructions for bf16; dtype auto is faster, in fp32")
    if dtype != "auto":
        return dtype
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
    return "bf16" if computes_bf16(device) else "fp32"


def computes_bf16(device: torch.device) -> bool:
    """Whether a device has instructions for bf16; others emulate it slowly."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # The public functions of torch name the vector width only.
    return device.type == "cpu" and getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
