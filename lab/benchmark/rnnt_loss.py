#!/usr/bin/env python3
"""Our transducer loss compared in one run with torchaudio's: peak memory and time of the joint
network with its loss.

Both compute the loss and all gradients from the same encoder frames and predictor outputs, in turn.
The scores of all units are a tensor (B, T, U + 1, V), which torchaudio needs whole. A batch is
measured without torchaudio if three of these tensors exceed --memory. Peak memory is what a repeat
adds to the memory before it. Seconds are CPU seconds on a CPU, because the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from provenance import benchmark_parser, provenance, settings
from torchaudio.functional import rnnt_loss

from wenet_uio.base.cli import run
from wenet_uio.families.transducer.conf import JointConf
from wenet_uio.families.transducer.joint import TransducerJoint
from wenet_uio.families.transducer.rnnt_loss import lattice_log_probs, rnnt_losses

GB = 1 << 30


class Case(NamedTuple):
    """One batch; the lengths are on the CPU."""

    joint: TransducerJoint
    encoder_out: torch.Tensor
    predicted: torch.Tensor
    labels: torch.Tensor
    frames: torch.Tensor
    tokens: torch.Tensor


def make_case(args: argparse.Namespace, batch: int) -> Case:
    """Random batch: utterances have between 1 - --spread and 1 times the largest number of frames
    and of labels.
    """
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    joint = TransducerJoint(
        args.units, args.width, args.width, JointConf(join_dim=args.join_dim)
    ).to(device)
    encoder_out = torch.randn(batch, args.frames, args.width, device=device, requires_grad=True)
    predicted = torch.randn(batch, args.labels + 1, args.width, device=device, requires_grad=True)
    labels = torch.randint(1, args.units, (batch, args.labels), device=device)
    share = 1 - args.spread * torch.linspace(0, 1, batch)
    frames = (share * args.frames).round().long()
    tokens = (share[torch.randperm(batch)] * args.labels).round().long()
    frames[0], tokens[0] = args.frames, args.labels  # torchaudio needs an utterance without padding

    return Case(joint, encoder_out, predicted, labels, frames, tokens)


def ours(case: Case) -> torch.Tensor:
    """Return the loss as a transducer computes it."""
    after = torch.nn.functional.pad(case.labels, (0, 1))
    units = torch.stack((torch.zeros_like(after), after), dim=2)
    log_probs = lattice_log_probs(
        case.joint, case.encoder_out, case.predicted, units, (case.frames, case.tokens)
    )
    return rnnt_losses(log_probs, case.frames, case.tokens).mean()


def torchaudios(case: Case) -> torch.Tensor:
    """Return the loss of the scores of all units."""
    device = case.labels.device
    scores = case.joint(case.encoder_out.unsqueeze(2), case.predicted.unsqueeze(1)).float()
    frames, tokens = (lengths.int().to(device) for lengths in (case.frames, case.tokens))
    return rnnt_loss(scores, case.labels.int(), frames, tokens, blank=0, reduction="mean")


def step(
    loss: Callable[[Case], torch.Tensor], case: Case, dtype: torch.dtype | None
) -> list[torch.Tensor]:
    """Return the loss and gradients of frames, predictor outputs and weights."""
    with torch.autocast(case.labels.device.type, dtype, enabled=dtype is not None):
        value = loss(case)
    inputs = [case.encoder_out, case.predicted, *case.joint.parameters()]
    return [value.detach(), *torch.autograd.grad(value, inputs)]


def reset_peak(device: torch.device) -> int:
    """Forget the peak of memory; bytes in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return read_peak(device)


def read_peak(device: torch.device) -> int:
    """Return the largest number of bytes in use since reset_peak."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def compare(args: argparse.Namespace, batch: int) -> dict[str, object]:
    """Measure one batch size."""
    case, dtype = make_case(args, batch), {"fp32": None, "bf16": torch.bfloat16}[args.dtype]
    device = case.labels.device
    whole = 4 * batch * args.frames * (args.labels + 1) * args.units
    losses = (
        {"ours": ours, "torchaudio": torchaudios}
        if 3 * whole <= args.memory * GB
        else {"ours": ours}
    )
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    memory, results = dict.fromkeys(losses, 0.0), {}

    for _ in range(args.repeats):
        for name, loss in losses.items():
            before = reset_peak(device)
            began = clock()
            results[name] = step(loss, case, dtype)
            memory[name] = max(memory[name], (read_peak(device) - before) / GB)
            seconds[name].append(clock() - began)

    report: dict[str, object] = {"batch": batch, "scores_gb": round(whole / GB, 9)}
    for name in losses:
        report[name] = {
            "seconds": round(statistics.median(seconds[name]), 3),
            "memory_gb": round(memory[name], 3),
        }

    if len(losses) == 2:
        report["speed_ratio"] = round(
            statistics.median(seconds["torchaudio"]) / statistics.median(seconds["ours"]), 3
        )
        report["memory_ratio"] = round(memory["torchaudio"] / max(memory["ours"], 1e-9), 2)
        report["apart"] = max(apart(*pair) for pair in zip(*results.values(), strict=True))

    return report


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the largest difference of two tensors, relative to the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    add = parser.add_argument
    add(
        "--batch_sizes",
        type=int,
        nargs="+",
        default=[4, 16],
        help="utterances of a batch (default: %(default)s)",
    )
    add(
        "--frames",
        type=int,
        default=250,
        help="encoder frames of the longest utterance (default: %(default)s)",
    )
    add("--labels", type=int, default=60, help="labels of the longest text (default: %(default)s)")
    add("--units", type=int, default=5000, help="units, with the blank (default: %(default)s)")
    add(
        "--width",
        type=int,
        default=256,
        help="width of encoder and predictor (default: %(default)s)",
    )
    add(
        "--join_dim",
        type=int,
        default=512,
        help="width of the joint network (default: %(default)s)",
    )
    add(
        "--spread",
        type=float,
        default=0.0,
        help="the shortest utterance is shorter by this share (default: none)",
    )
    add(
        "--dtype",
        choices=("fp32", "bf16"),
        default="fp32",
        help="arithmetic of the joint network (default: fp32)",
    )
    add(
        "--memory",
        type=float,
        default=8.0,
        help="gigabytes that torchaudio's loss may take (default: %(default)s)",
    )
    add("--repeats", type=int, default=3, help="repeats (default: %(default)s)")

    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every batch size."""
    args = parse_arguments(argv)
    results = []
    for batch in args.batch_sizes:
        results.append(compare(args, batch))
        print(json.dumps(results[-1]))

    if args.json:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        print(
            json.dumps(
                {
                    "device": device,
                    "results": results,
                    **settings(args),
                    **provenance("torch", "torchaudio"),
                }
            )
        )


if __name__ == "__main__":
    run(main)
