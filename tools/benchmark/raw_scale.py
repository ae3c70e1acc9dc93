#!/usr/bin/env python3
"""Raw lists of growing length: a loader's memory, its first batch, and its speed must not depend on it.

The lines of each list name the same few audio files, so that only the list grows. Every list is indexed, then read by
a process of its own: `first_batch_s` counts from opening the list, with its index on disk, to the first batch of fbank.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from wenet_uio.cli import run

RATE = 16000
FILES = 500
RESIDENT = ("Rss", "Anonymous")


def write_audio(folder: Path) -> list[tuple[str, float]]:
    """Paths and seconds of noise of 1 to 16 s."""
    random = np.random.default_rng(0)
    files = []
    for number in range(FILES):
        samples = int(random.uniform(1, 16) * RATE)
        path = folder / f"{number:03d}.wav"
        soundfile.write(path, random.normal(0, 0.05, samples), RATE, subtype="PCM_16")
        files.append((str(path), samples / RATE))
    return files


def write_list(path: Path, utterances: int, files: list[tuple[str, float]]) -> None:
    """A raw list, and its index."""
    from wenet_uio.dataset.indexing import ensure_index

    with path.open("w") as file:
        for number in range(utterances):
            wav, seconds = files[number % len(files)]
            file.write(json.dumps({"key": f"utt{number:08d}", "wav": wav, "txt": "abc", "duration": seconds}) + "\n")
    ensure_index(str(path), "raw")


def read(path: Path, batches: int) -> dict[str, float]:
    """First batch, memory and speed of one loader."""
    from wenet_uio.config import parse_config
    from wenet_uio.dataset.dataset import build_loader
    from wenet_uio.text.char import CharSplitter
    from wenet_uio.text.tokenizer import Tokenizer

    batch_conf = {"batch_type": "dynamic", "max_frames_in_batch": 12000}
    values = {"dataset_conf": {"batch_conf": batch_conf, "fbank_conf": {"num_mel_bins": 80}}}
    config = parse_config(values, "benchmark")
    tokenizer = Tokenizer(CharSplitter(), {"<blank>": 0, "<unk>": 1, "a": 2, "b": 3, "c": 4})
    began = time.perf_counter()
    loader = iter(build_loader(str(path), "raw", config, tokenizer, training=True))
    next(loader)
    first = time.perf_counter() - began
    seconds, began = 0.0, time.perf_counter()
    for _ in range(batches):
        seconds += next(loader).seconds
    speed = seconds / (time.perf_counter() - began)
    resident = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    memory = {name: int(resident[name].split()[0]) / 1024 for name in RESIDENT}
    return {
        "first_batch_s": first,
        "audio_seconds_per_second": speed,
        "rss_mb": memory["Rss"],
        "own_mb": memory["Anonymous"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--utterances", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="of each list")
    parser.add_argument("--batches", type=int, default=60, help="read after the first (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        files = write_audio(Path(folder))
        lists = {count: Path(folder) / f"{count}.list" for count in args.utterances}
        for count, path in lists.items():
            with context.Pool(1) as pool:
                pool.apply(write_list, (path, count, files))
        measured: dict[int, list[dict[str, float]]] = {count: [] for count in lists}
        for _ in range(args.repeats):
            for count, path in lists.items():
                with context.Pool(1) as pool:  # a process of its own
                    measured[count].append(pool.apply(read, (path, args.batches)))
    results = {
        count: {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
        for count, runs in measured.items()
    }
    for count, result in results.items():
        print(f"{count} utterances: {result}", file=sys.stderr)
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    run(main)
