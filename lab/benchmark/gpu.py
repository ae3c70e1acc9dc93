#!/usr/bin/env python3
"""First measurements on a GPU. Each result is a line of JSON, written as soon as it is known.

    gpu.py all --out gpu.jsonl          every mode
    gpu.py parity speed --minutes 3     some of them
    gpu.py all --toy --device cpu       sizes of seconds, which measure nothing: does every mode run?

Every mode runs in a process of its own, so that a fault of the device ends that mode alone. A mode
stops by itself before --minutes are over, judged by the longest of its cases so far, and writes
what it left out. A mode that fails is named with its error on one line, and the others still run;
the exit status is then 1.

Needs torch, numpy, pydantic, pyyaml, soundfile, fsspec, tqdm and requests. gpu.md says what each
mode answers.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from provenance import commit

from wenet_uio.base.cli import run

MODES = {
    "env": "GPU, driver, versions, packages that are missing",
    "parity": "gradients of the GPU in fp32, TF32 and bf16 beside those of the CPU",
    "syncs": "places where a step waits for the GPU",
    "shapes": "time of a batch of an unseen shape beside a seen one",
    "speed": "audio seconds per second, time of the host and memory, by batch size, dtype and "
    "compilation",
    "kernels": "busy share of the GPU, and the kernels that take the time",
    "train": "train.py on made-up audio: waiting for data and utilisation, by lists, workers and "
    "place of the features",
    "memory": "the largest batches that fit, and the gradient of a batch that is split",
    "ranks": "two ranks on one device, killed and resumed: the weights of an undisturbed run",
    "decode": "audio seconds per second of decoding, by decode mode, dtype and batch size",
}
"""{mode: what it answers}; each is a module in gpu_modes."""
GRACE, LEAST = 120, 300
"""Seconds that a mode may take beyond its --minutes, and at least, before it is killed."""


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    listed = "\n".join(f"    {mode:9}{question}" for mode, question in MODES.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"modes:\n{listed}\n    all      every mode, in this order",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "modes", nargs="+", metavar="MODE", choices=[*MODES, "all"], help="see below"
    )
    parser.add_argument("--toy", action="store_true", help="sizes of seconds that measure nothing")
    parser.add_argument(
        "--minutes", type=float, default=8, help="time of a mode (default: %(default)s)"
    )
    parser.add_argument(
        "--out", metavar="FILE.jsonl", help="append the results to this file as well"
    )
    parser.add_argument(
        "--device", default="auto", help="auto (a GPU if there is one), cpu, cuda, cuda:N"
    )
    parser.add_argument(
        "--folder", help="folder for the made-up audio, 0.5 GB (default: a temporary folder)"
    )
    # This is the process of the mode
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)

    return parser.parse_args()


def run_inside(mode: str, args: argparse.Namespace) -> int:
    """Run a mode in this process; 1 if it or one of its cases failed."""
    from gpu_modes.report import Options, Report  # imports torch

    options = Options(
        toy=args.toy, minutes=args.minutes, device=args.device, out=args.out, folder=args.folder
    )
    report = Report(mode, options)
    with report.named_failure():
        report.begin()
        importlib.import_module(f"gpu_modes.{mode}").run(report)

    return 1 if report.failures else 0


def command_of(mode: str, args: argparse.Namespace) -> list[str]:
    """Return the command of the process of a mode, with the options of this process."""
    named = {
        "--minutes": args.minutes,
        "--device": args.device,
        "--out": args.out,
        "--folder": args.folder,
    }
    options = [
        text for name, value in named.items() if value is not None for text in (name, str(value))
    ]
    return [sys.executable, __file__, mode, "--inside", *options, *(["--toy"] if args.toy else [])]


def seconds_of_mode(minutes: float) -> float:
    """Return seconds after which a mode with `minutes` is killed."""
    return max(60 * minutes + GRACE, LEAST)


def run_apart(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run the process of a mode -> its exit status, and why it ended if it could not say so itself.

    The process leads a session, so that its processes end with it.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return 1, f"was killed because it had not ended after {seconds:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    return status, f"was killed by {signal.Signals(-status).name}" if status < 0 else ""


def note_end(mode: str, why: str, out: str | None) -> None:
    """Write that a mode ended without a word of its own."""
    print(f"error: {mode}: {why}", file=sys.stderr)
    line = json.dumps({"mode": mode, "error": why, "commit": commit()})
    print(line, flush=True)
    if out:
        with open(out, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def main() -> int:
    """Run the modes one after another; 1 if one of them failed."""
    args = parse_arguments()
    if args.inside:
        return run_inside(args.modes[0], args)

    modes = list(MODES) if "all" in args.modes else list(dict.fromkeys(args.modes))
    if args.out:
        open(args.out, "a").close()  # a wrong path is an error before the first measurement

    # run_apart then ends its process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    failed = []
    for mode in modes:
        status, why = run_apart(command_of(mode, args), seconds_of_mode(args.minutes))
        if why:
            note_end(mode, why, args.out)
        if status:
            failed.append(mode)

    if failed:
        print(f"error: of {len(modes)} modes failed: {', '.join(failed)}", file=sys.stderr)

    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
