#!/usr/bin/env python3
"""Our loader beside WebDataset's and Lhotse's, in one run: tar to padded, spec-augmented fbank batches.

The same synthetic audio (16-bit wav, 16 kHz, 1 to 16 s, in shards of 500) goes through each: read, 80-bin fbank without
dither, spec-augment, shuffle, dynamic batches of 12,000 frames, pad. Ours reads it as shards and as raw files, and also
as waveform batches (features left to the accelerator, and not computed here). Every epoch is a process of its own;
rounds of all alternate; a figure is the median of its rounds.

    speed    audio seconds per second, from opening the list to the last batch; imports are left out
    first    seconds to the first batch
    padding  percent of the padded frames (samples of waveform batches) without audio
    memory   MB: peak of the process, and of its largest worker times their number; shared pages count in each

Needs webdataset and lhotse: pip install -r tools/benchmark/requirements.txt
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import soundfile
import torch
from loader_peers import lhotse_batches, webdataset_batches, write_shar
from provenance import provenance

from wenet_uio.cli import run
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.data_list import RawLine
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.packing import make_raw_list, make_shard_list
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.tokenizer import Tokenizer

RATE = 16000
SHARD_SIZE = 500
OURS, PEERS = ("shard", "raw", "waveform"), ("webdataset", "lhotse")
CONF = {"fbank_conf": {"num_mel_bins": 80}, "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 12000}}


def make_corpus(folder: Path, hours: float) -> None:
    """Wav files, raw.list, shard.list with its tars, and a Lhotse Shar, of the same audio; kept if they are there."""
    if (folder / "complete").exists():
        return
    random = np.random.default_rng(0)
    noise = random.normal(0, 2000, 17 * RATE)
    lines, left = [], hours * 3600
    (folder / "wav").mkdir(parents=True, exist_ok=True)
    while left > 0:
        seconds = random.uniform(1, 16)
        start = int(random.uniform(0, RATE))
        path = folder / "wav" / f"{len(lines):06d}.wav"
        soundfile.write(path, noise[start : start + int(seconds * RATE)].astype(np.int16), RATE, subtype="PCM_16")
        lines.append(RawLine(path.stem, str(path), "abc" * (1 + int(seconds))))
        left -= seconds
    make_raw_list(lines, str(folder / "raw.list"))
    make_shard_list(lines, folder / "shards", str(folder / "shard.list"), per_shard=SHARD_SIZE)
    write_shar(lines, folder / "shar", SHARD_SIZE)
    (folder / "complete").touch()


def our_batches(kind: str, folder: Path, workers: int) -> Iterator[tuple[float, int, int]]:
    """Of each batch: seconds, frames or samples with audio, and with padding."""
    data_type = "raw" if kind == "raw" else "shard"
    tokenizer = Tokenizer(CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3, "b": 4, "c": 5})
    config = argparse.Namespace(dataset_conf=DatasetConf(**CONF))
    loader = build_loader(
        str(folder / f"{data_type}.list"),
        data_type,
        config,
        tokenizer,
        training=True,
        num_workers=workers,
        defer_features=kind == "waveform",
    )
    for batch in loader:
        if batch.skipped:
            raise ValueError(f"{batch.skipped[0]}: not to be expected here")
        padded = batch.deferred.waveforms if batch.deferred else batch.feats[:, :, 0]
        lengths = batch.deferred.lengths if batch.deferred else batch.feats_lengths
        yield batch.seconds, int(lengths.sum()), padded.numel()


def measure(kind: str, folder: Path, workers: int) -> dict[str, float]:
    """One epoch in this process."""
    torch.set_num_threads(1)
    if kind == "webdataset":
        make = webdataset_batches
    elif kind == "lhotse":
        make = lhotse_batches
    else:

        def make(folder: Path, workers: int) -> Iterator[tuple[float, int, int]]:
            return our_batches(kind, folder, workers)

    began = time.perf_counter()
    audio, real, padded, first = 0.0, 0, 0, 0.0
    batches = make(folder, workers)
    for seconds, frames, padded_frames in batches:
        first = first or time.perf_counter() - began
        audio, real, padded = audio + seconds, real + frames, padded + padded_frames
    elapsed = time.perf_counter() - began
    del batches
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory += workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "speed": audio / elapsed,
        "first_batch_s": first,
        "padding": 100 * (1 - real / padded),
        "memory_mb": memory / 1024,
        "audio_seconds": audio,
    }


def in_own_process(kind: str, folder: Path, workers: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--folder", str(folder), "--one", kind, "--workers", str(workers)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{kind} with {workers} workers: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=4.6, help="of audio (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="epochs of each (default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=OURS + PEERS, default=OURS + PEERS, help="default: all")
    parser.add_argument("--folder", type=Path, help="that keeps the corpus for another run (default: none)")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2], help="default: 0 2")
    parser.add_argument("--one", choices=OURS + PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.folder, args.workers[0])))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        make_corpus(folder, args.hours)
        found: dict[tuple[int, str], list[dict[str, float]]] = {}
        for _ in range(args.repeats):
            for workers in args.workers:
                for kind in args.kinds:
                    found.setdefault((workers, kind), []).append(in_own_process(kind, folder, workers))
    print(f"{'workers':>7} {'':<11}{'speed':>8}{'first s':>9}{'padding %':>11}{'memory MB':>11}")
    results = []
    for (workers, kind), rounds in found.items():
        figures = {name: round(median(each[name] for each in rounds), 3) for name in rounds[0]}
        results.append({"workers": workers, "kind": kind, **figures})
        print(
            f"{workers:7} {kind:<11}{figures['speed']:8.0f}{figures['first_batch_s']:9.2f}{figures['padding']:11.2f}"
            f"{figures['memory_mb']:11.0f}"
        )
    speeds = {(result["workers"], result["kind"]): result["speed"] for result in results}
    peers = [speeds[0, kind] for kind in PEERS if (0, kind) in speeds]
    report = {
        "ratio_to_best_peer": round(speeds[0, "shard"] / max(peers), 3) if peers and (0, "shard") in speeds else None,
        "hours": args.hours,
        "repeats": args.repeats,
        "results": results,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        **provenance("torch", *(kind for kind in args.kinds if kind in PEERS)),
    }
    print(f"{report['ratio_to_best_peer']} x the best peer; {report['versions']}; commit {report['commit']}")
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
