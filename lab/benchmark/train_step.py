#!/usr/bin/env python3
"""Training speed of one process without reading data: audio seconds per second of the step loop on
random batches.

The model is a small conformer of 4.6 million parameters (80 bins, 6 blocks of 144, 2 decoder
blocks, 700 units). Every repeat runs the same steps on the same batches. The report has the median
and the fastest repeat. On a shared machine, compare the speed per second of CPU time.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from provenance import benchmark_parser
from tqdm import tqdm

from wenet_uio.base.cli import run
from wenet_uio.base.memory import keep_freed_memory
from wenet_uio.config import Config, parse_config
from wenet_uio.dataset.types import Batch
from wenet_uio.models.build import build_trainable
from wenet_uio.train.distributed import World
from wenet_uio.train.engine import Engine
from wenet_uio.train.engines import build_engine
from wenet_uio.train.objective import keep_kernels
from wenet_uio.train.run_config import choose_dtype

BINS, UNITS, FRAMES_PER_SECOND = 80, 700, 100
LAYERS = {"attention_heads": 4, "linear_units": 576}
MODEL = {
    "encoder": "conformer",
    "encoder_conf": {**LAYERS, "output_size": 144, "num_blocks": 6, "cnn_module_kernel": 15},
    "decoder": "transformer",
    "decoder_conf": {**LAYERS, "num_blocks": 2},
    "model_conf": {"ctc_weight": 0.3, "lsm_weight": 0.1},
    "tokenizer_conf": {"special_tokens": {"<sos>": UNITS - 1, "<eos>": UNITS - 1}},
    "input_dim": BINS,
    "output_dim": UNITS,
    "grad_clip": 5,
}


def make_batches(count: int, size: int, seconds: float, tokens_per_second: float) -> list[Batch]:
    """Make random batches of utterances of similar length, 0.9 to 1.1 times `seconds`, as a plan
    does.
    """
    random = torch.Generator().manual_seed(0)
    batches = []
    for index in range(count):
        durations = (
            seconds * (0.9 + 0.2 * torch.rand(size, generator=random)).sort(descending=True).values
        )
        lengths = (durations * FRAMES_PER_SECOND).long()
        target_lengths = (durations * tokens_per_second).long().clamp(min=1)
        feats = torch.randn(size, int(lengths.max()), BINS, generator=random)
        target = torch.randint(1, UNITS - 1, (size, int(target_lengths.max())), generator=random)
        target[torch.arange(target.size(1)) >= target_lengths[:, None]] = -1
        keys = tuple(f"{index}-{row}" for row in range(size))
        batches.append(Batch(keys, feats, lengths, target, target_lengths, float(durations.sum())))

    return batches


def make_engine(config: Config, device: str = "auto") -> Engine:
    """Build the engine with a freshly initialised model, on a GPU if there is one."""
    torch.manual_seed(0)
    engine = build_engine(build_trainable(config), config, World.from_environment(device), 0)
    engine.connect()
    return engine


def run_steps(engine: Engine, batches: Sequence[Batch], first: int) -> float:
    """Take a step on each batch, numbered from `first`.

    As in training, a result is read when the next step is launched.

    Returns:
        Seconds in which the host launched the steps, without those in which it waited for their
        results.
    """
    before, seconds = None, 0.0
    for number, batch in enumerate(batches, first):
        began = time.perf_counter()
        launched = engine.launch([batch], number, {})
        seconds += time.perf_counter() - began
        if before is not None:
            before.outcome()

        before = launched

    if before is not None:
        before.outcome()

    return seconds


class Speed(NamedTuple):
    """Figures of a repeat."""

    audio_per_second: float
    """Audio seconds."""
    audio_per_cpu_second: float
    """Audio seconds per second of CPU time of all threads."""
    launch_seconds: float
    """Mean of the steps, see `run_steps`."""


def measure(engine: Engine, batches: list[Batch], repeats: int) -> list[Speed]:
    """Measure each repeat, after a first one to warm up."""
    speeds = []
    audio = sum(batch.seconds for batch in batches)
    for repeat in tqdm(range(repeats + 1), unit="repeat", disable=None):
        began, processors_began = time.perf_counter(), time.process_time()
        launching = run_steps(engine, batches, 1 + repeat * len(batches))
        if engine.world.device.type == "cuda":
            torch.cuda.synchronize(engine.world.device)

        passed, used = time.perf_counter() - began, time.process_time() - processors_began
        speeds.append(Speed(audio / passed, audio / used, launching / len(batches)))

    return speeds[1:]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--batch_size", type=int, default=16, help="utterances of a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="seconds of an utterance (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens_per_second",
        type=float,
        default=3.0,
        help="tokens of a second of audio (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=int, default=4, help="steps of a repeat (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="repeats (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, help="threads of torch on the CPU (default: one for each core)"
    )
    parser.add_argument(
        "--dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="default: %(default)s"
    )
    parser.add_argument("--torch_compile", action="store_true", help="compile the layers")

    return parser.parse_args()


def main() -> None:
    """Measure the step loop."""
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)

    config = parse_config(
        {**MODEL, "dtype": args.dtype, "torch_compile": args.torch_compile}, "train_step.py"
    )
    engine = make_engine(choose_dtype(config, World.from_environment("auto").device))
    if engine.world.device.type == "cpu":
        keep_freed_memory()  # as train.py does, likewise
        keep_kernels()

    batches = make_batches(args.steps, args.batch_size, args.seconds, args.tokens_per_second)
    speeds = measure(engine, batches, args.repeats)
    report = {
        "parameters": sum(weight.numel() for weight in engine.model.parameters()),
        "device": engine.world.device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "audio_seconds_per_second": round(
            statistics.median(turn.audio_per_second for turn in speeds), 1
        ),
        "fastest": round(max(turn.audio_per_second for turn in speeds), 1),
        "audio_seconds_per_cpu_second": round(
            statistics.median(turn.audio_per_cpu_second for turn in speeds), 1
        ),
    }
    print(", ".join(f"{name} {value}" for name, value in report.items()), file=sys.stderr)
    if args.json:
        print(json.dumps(vars(args) | report))


if __name__ == "__main__":
    run(main)
