#!/usr/bin/env python3
"""Our fbank compared in one run with torchaudio and kaldi-native-fbank: speed on one core and
largest difference.

80 bins, windows of 25 ms every 10 ms, 16 kHz, no dither; waveforms of 1 to 30 s, one at a time.
Repeats of the three alternate; a figure is the median of its repeats. Speeds are audio seconds per
second. The ratios compare the time of all lengths together.

Needs kaldi-native-fbank: pip install -r lab/benchmark/requirements.txt
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from statistics import median

import torch
from provenance import benchmark_parser, provenance, settings
from torchaudio.compliance import kaldi

from wenet_uio.base.cli import run
from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank

LENGTHS = (1, 2, 5, 10, 20, 30)
"""Seconds of the waveforms."""
RATE, BINS = 16000, 80

Fbank = Callable[[torch.Tensor], torch.Tensor]


def speech_like(seconds: int) -> torch.Tensor:
    """Make noise with more power in low frequencies: (samples,) float32 on the scale of int16."""
    noise = torch.randn(seconds * RATE, generator=torch.Generator().manual_seed(seconds))
    walk = noise.cumsum(0)
    return ((walk - walk.mean()) * 30 + noise * 200).clamp(-32768, 32767).round()


def ours(waveform: torch.Tensor) -> torch.Tensor:
    """Compute (frames, BINS) log energies by wenet_uio."""
    return fbank(waveform, RATE, FbankConf(num_mel_bins=BINS))


def torchaudios(waveform: torch.Tensor) -> torch.Tensor:
    """Compute (frames, BINS) log energies by torchaudio."""
    return kaldi.fbank(waveform[None], num_mel_bins=BINS, sample_frequency=RATE, energy_floor=0.0)


def kaldi_native() -> Fbank:
    """Return kaldi-native-fbank as a function: its online interface, called from Python.

    Raises:
        ValueError: kaldi-native-fbank is not installed.
    """
    try:
        import kaldi_native_fbank  # pyright: ignore[reportMissingImports]  # optional
    except ImportError as error:
        raise ValueError(f"{error}; to compare with it: pip install kaldi-native-fbank") from None

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.samp_freq = RATE
    options.mel_opts.num_bins = BINS

    def compute(waveform: torch.Tensor) -> torch.Tensor:
        online = kaldi_native_fbank.OnlineFbank(options)
        online.accept_waveform(RATE, waveform.numpy())
        online.input_finished()
        return torch.stack(
            [torch.from_numpy(online.get_frame(frame)) for frame in range(online.num_frames_ready)]
        )

    return compute


def clock(compute: Fbank, waveform: torch.Tensor, least_seconds: float) -> float:
    """Measure audio seconds per second, over the calls that process `least_seconds` of audio."""
    calls = max(1, round(least_seconds * RATE / len(waveform)))
    began = time.perf_counter()
    for _ in range(calls):
        compute(waveform)
    return calls * len(waveform) / RATE / (time.perf_counter() - began)


def largest_difference(rivals: dict[str, Fbank], waveforms: Iterable[torch.Tensor]) -> float:
    """Return the largest difference between our log energies and torchaudio's; also warms up all
    implementations.
    """
    error = 0.0
    for waveform in waveforms:
        features = {name: compute(waveform) for name, compute in rivals.items()}
        error = max(error, float((features["ours"] - features["torchaudio"]).abs().max()))
    return error


def measure(
    rivals: dict[str, Fbank], waveforms: dict[int, torch.Tensor], args: argparse.Namespace
) -> dict[str, dict[int, float]]:
    """Measure all implementations in turn; return {name: {seconds: median speed}}."""
    speeds: dict[tuple[int, str], list[float]] = {}
    for _ in range(args.repeats):
        for seconds, waveform in waveforms.items():
            for name, compute in rivals.items():
                speeds.setdefault((seconds, name), []).append(
                    clock(compute, waveform, args.seconds)
                )

    return {
        name: {seconds: round(median(speeds[seconds, name]), 1) for seconds in waveforms}
        for name in rivals
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=9, help="repeats (default: %(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=60,
        help="seconds of audio in each repeat (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of torch (default: %(default)s)"
    )

    return parser.parse_args()


def main() -> None:
    """Compare the three implementations and print a table."""
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    rivals = {"ours": ours, "torchaudio": torchaudios, "kaldi_native_fbank": kaldi_native()}
    waveforms = {seconds: speech_like(seconds) for seconds in LENGTHS}
    error = largest_difference(rivals, waveforms.values())
    medians = measure(rivals, waveforms, args)
    print(f"{'seconds':>8}" + "".join(f"{name:>20}" for name in rivals))
    for seconds in LENGTHS:
        print(f"{seconds:8}" + "".join(f"{medians[name][seconds]:20.0f}" for name in rivals))

    taken = {name: sum(seconds / medians[name][seconds] for seconds in LENGTHS) for name in rivals}
    report = {
        "ratio_to_torchaudio": round(taken["torchaudio"] / taken["ours"], 3),
        "ratio_to_kaldi_native_fbank": round(taken["kaldi_native_fbank"] / taken["ours"], 3),
        "max_error": error,
        "audio_seconds_per_second": medians,
        **settings(args),
        **provenance("torch", "torchaudio", "kaldi-native-fbank"),
    }
    print(
        f"{report['ratio_to_torchaudio']:.2f} x torchaudio; largest difference {error:.1e}; "
        f"{report['versions']}"
    )
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
