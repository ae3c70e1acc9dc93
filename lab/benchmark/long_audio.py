#!/usr/bin/env python3
"""Speed of input layers, and memory of encoding long audio with limited and with full attention.

The model is that of train_step.py with another input layer or `att_context_size`, on random
features. For speed, training steps and passes of the encoder with CTC labels (decoding) of all
input layers alternate. For memory, a process of its own encodes the audio once; `growth_mb` is its
peak memory without what it used before the encoder ran.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from provenance import benchmark_parser, provenance
from tqdm import tqdm
from train_step import BINS, FRAMES_PER_SECOND, MODEL, make_batches, make_engine

from wenet_uio.base.cli import run
from wenet_uio.config import parse_config
from wenet_uio.dataset.types import Batch
from wenet_uio.models import build_model
from wenet_uio.models.speech_model import SpeechModel


def model_keys(**encoder_conf: Any) -> dict[str, Any]:
    """MODEL with other keys of the encoder."""
    return {**MODEL, "encoder_conf": {**MODEL["encoder_conf"], **encoder_conf}}


def trainer(layer: str, batches: list[Batch]) -> Callable[[], None]:
    """Return a function that trains a model with input layer `layer` on all batches."""
    engine = make_engine(parse_config(model_keys(input_layer=layer), "long_audio.py"))

    def train() -> None:
        for number, batch in enumerate(batches, 1):
            engine.step([batch], number, {})

    return train


def decoder(layer: str, batches: list[Batch]) -> Callable[[], None]:
    """Return a function that encodes all batches with input layer `layer` and takes the best CTC
    labels.
    """
    model = build_model(parse_config(model_keys(input_layer=layer), "long_audio.py")).eval()

    @torch.no_grad()
    def recognise() -> None:
        for batch in batches:
            model.ctc_log_probs(model.encode(batch.feats, batch.feats_lengths)[0]).argmax(dim=2)

    return recognise


def measure_speed(layers: list[str], batches: list[Batch], repeats: int) -> list[dict[str, Any]]:
    """Return audio seconds per second of CPU time of each input layer: medians of `repeats`, after
    one to warm up.
    """
    ways = {
        (layer, make.__name__): make(layer, batches)
        for layer in layers
        for make in (trainer, decoder)
    }
    used: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    for _ in tqdm(range(repeats + 1), unit="repeat", disable=None):
        for way, work in ways.items():
            began = time.process_time()
            work()
            used[way].append(time.process_time() - began)

    audio = sum(batch.seconds for batch in batches)
    speeds = {way: round(audio / statistics.median(times[1:]), 1) for way, times in used.items()}
    return [
        {
            "input_layer": layer,
            "training": speeds[layer, "trainer"],
            "decoding": speeds[layer, "decoder"],
        }
        for layer in layers
    ]


def peak_mb() -> float:
    """Peak memory of this process so far; `ru_maxrss` of a child would begin with the memory of its
    parent.
    """
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


@torch.no_grad()
def encode_long(layer: str, context: tuple[int, int], minutes: float) -> dict[str, Any]:
    """Encode `minutes` of random features once; CPU seconds and memory."""
    keys = model_keys(input_layer=layer, att_context_size=context)
    model: SpeechModel = build_model(parse_config(keys, "long_audio.py")).eval()
    feats = torch.randn(1, int(minutes * 60 * FRAMES_PER_SECOND), BINS)
    before, began = peak_mb(), time.process_time()
    frames = model.encode(feats, torch.tensor([feats.size(1)]))[0].size(1)
    used = {
        "cpu_seconds": round(time.process_time() - began, 1),
        "growth_mb": round(peak_mb() - before),
    }

    return {
        "input_layer": layer,
        "att_context_size": context,
        "minutes": minutes,
        "frames": frames,
        **used,
    }


def measure_memory(layer: str, lengths: dict[tuple[int, int], list[float]]) -> list[dict[str, Any]]:
    """Return `encode_long` of {att_context_size: minutes}, each in a new process."""
    results = []
    for context, minutes in lengths.items():
        for length in minutes:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                results.append(process.submit(encode_long, layer, context, length).result())
            print(results[-1], file=sys.stderr)

    return results


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--input_layers", nargs="*", default=["conv2d", "dwconv2d8"], help="default: %(default)s"
    )
    parser.add_argument(
        "--batch_size", type=int, default=16, help="utterances of a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=12.0, help="seconds of an utterance (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=1, help="batches of a repeat (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="repeats (default: %(default)s)")
    parser.add_argument(
        "--minutes",
        type=float,
        nargs="*",
        default=[20, 60],
        help="lengths of long audio (default: %(default)s)",
    )
    parser.add_argument(
        "--full_minutes",
        type=float,
        nargs="*",
        default=[20],
        help="the same for full attention (default: %(default)s)",
    )
    parser.add_argument(
        "--context",
        type=int,
        nargs=2,
        default=[128, 128],
        help="att_context_size of long audio (default: %(default)s)",
    )

    return parser.parse_args()


def main() -> None:
    """Measure speed, then memory."""
    args = parse_arguments()
    speed: list[dict[str, Any]] = []
    if args.input_layers:
        batches = make_batches(args.steps, args.batch_size, args.seconds, 3.0)
        speed = measure_speed(args.input_layers, batches, args.repeats)
        print(*speed, sep="\n", file=sys.stderr)

    before, after = args.context
    memory = measure_memory(
        "dwconv2d8", {(before, after): args.minutes, (-1, -1): args.full_minutes}
    )
    report = {
        **provenance("torch"),
        "threads": torch.get_num_threads(),
        "speed": speed,
        "memory": memory,
    }
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
