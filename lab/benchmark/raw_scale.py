#!/usr/bin/env python3
"""Lists of growing length: first batch, memory and cost per utterance should not depend on the
length.

All lines of a raw list name the same few audio files, and all lines of a shard list are links to
the same tar: only the list grows. Every list is indexed first. Then its own process reads it
without workers. Repeats of all lists alternate; a figure is the median of its repeats.

    first   seconds from opening the list, with its index on disk, to the first batch of fbank
    read    microseconds of CPU time to read an utterance of average length into a batch
    plan    microseconds of CPU time to plan an utterance, over a whole epoch
    RSS     MB of resident memory after the last batch
    own     MB of it that are not mapped files
    spread  cost (read + plan) of the most expensive list over that of the cheapest, minus 1

A second table is of the index, each figure of its own process:

    index     CPU seconds and peak memory in MB of indexing the list; shards have their indexes already
    frames    CPU seconds to compute the costs of all shards, which every rank does when it starts; for batches of
              frames, and below for policies and filters that need the length of every sample
    quadratic batch_duration with quadratic_duration
    buckets   buckets of duration and tokens
    filter    batches of frames, and a filter that leaves out samples of every shard
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provenance import benchmark_parser, provenance

from wenet_uio.base.cli import run
from wenet_uio.dataset.corpus.open_list import index_of

if TYPE_CHECKING:
    from wenet_uio.dataset.formats.data_list import DataType

CONFIGS = {
    "frames": {"batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 12000}},
    "quadratic": {
        "batch_conf": {"batch_type": "dynamic", "batch_duration": 300, "quadratic_duration": 20}
    },
    "buckets": {
        "batch_conf": {
            "batch_type": "bucket",
            "bucket_duration_bins": [[4, 9], [4, 20], [8, 20], [8, 40], [16, 40], [16, 80]],
            "bucket_batch_size": [64, 60, 32, 30, 16, 15],
        }
    },
    "filter": {
        "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 12000},
        "filter_conf": {"max_length": 1500},
    },
}
"""Batches and filters whose costs are computed."""
RESIDENT = {"Rss": "rss_mb", "Anonymous": "own_mb"}


def write_list(path: Path, utterances: int, data_type: DataType, files: int) -> None:
    """Write a raw or shard list beside the folder of audio; every shard contains all files."""
    from corpus import write_audio

    from wenet_uio.dataset.corpus.open_list import THREADS
    from wenet_uio.dataset.corpus.shard_index import sidecar_of
    from wenet_uio.prepare.list_making import make_shard_list
    from wenet_uio.prepare.sharding import ShardOptions

    audio, shards = path.parent / "wav", path.parent / "shards"
    lines = write_audio(audio, files)
    with path.open("w") as file:
        if data_type == "raw":
            for number in range(utterances):
                file.write(replace(lines[number % files], key=f"utt{number:08d}").to_json() + "\n")
        else:
            make_shard_list(
                lines, shards, str(path.parent / "one.list"), ShardOptions(per_shard=files), THREADS
            )
            (tar,) = (path.parent / "one.list").read_text().split()
            for number in range(-(-utterances // files)):
                link = path.parent / f"{path.stem}_{number:06d}.tar"
                link.symlink_to(tar)
                sidecar_of(link).symlink_to(sidecar_of(tar))
                file.write(f"{link}\n")


def index(path: Path, data_type: DataType) -> dict[str, float]:
    """Index a list: CPU time, memory."""
    from wenet_uio.dataset.corpus.open_list import ensure_index

    began = time.process_time()
    ensure_index(str(path), data_type)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"index_s": time.process_time() - began, "index_mb": peak}


def costs(path: Path, data_type: DataType, name: str) -> dict[str, float]:
    """Compute the costs of all shards of a list under one of CONFIGS: CPU time, memory."""
    from wenet_uio.config.dataset import DatasetConf
    from wenet_uio.dataset.corpus.open_list import open_list
    from wenet_uio.dataset.plan.lanes import ShardCosts
    from wenet_uio.dataset.plan.measure import measure_of

    measure = measure_of(
        DatasetConf.model_validate(CONFIGS[name]), training=True, text_length_is_tokens=True
    )
    corpus = open_list(str(path), data_type)
    began = time.process_time()
    total = int(ShardCosts(corpus, measure).array.sum())
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    return {f"{name}_s": seconds, f"{name}_mb": peak, f"{name}_total": total}


def read(path: Path, data_type: DataType, batches: int) -> dict[str, float]:
    """Read the first batches of a list: time to the first batch, cost per utterance, memory."""
    import torch
    from corpus import MEAN, open_loader

    torch.set_num_threads(1)
    began = time.perf_counter()
    loader = open_loader(path, data_type)
    stream = iter(loader)
    next(stream)
    first = time.perf_counter() - began
    for _ in range(loader.cursor.plan.lanes):  # every lane plans its first group
        next(stream)

    seconds, began = 0.0, time.process_time()
    for _ in range(batches):
        seconds += next(stream).seconds

    reading = (time.process_time() - began) * MEAN / seconds
    resident = dict(
        line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    memory = {ours: int(resident[name].split()[0]) / 1024 for name, ours in RESIDENT.items()}
    began = time.process_time()
    plan = loader.cursor.plan.of_epoch(seed=1, epoch=1)
    planned = sum(len(plan.batch(number)) for number in range(plan.num_batches))
    planning = (time.process_time() - began) / planned

    return {"first_batch_s": first, "read_us": 1e6 * reading, "plan_us": 1e6 * planning, **memory}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    sizes = [3000, 10_000, 100_000, 1_000_000]
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of the lists (default: %(default)s)",
    )
    parser.add_argument(
        "--utterances",
        type=int,
        nargs="+",
        default=sizes,
        help="lengths of the lists (default: %(default)s)",
    )
    parser.add_argument(
        "--files", type=int, default=500, help="different audio files (default: %(default)s)"
    )
    parser.add_argument(
        "--batches", type=int, default=60, help="batches measured (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each list (default: %(default)s)"
    )

    return parser.parse_args()


def measure_lists(args: argparse.Namespace) -> dict[int, list[dict[str, float]]]:
    """Write all lists and read them in turn, each time in a new process; return {utterances:
    figures of its runs}.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        lists = {count: Path(folder) / f"{count}.list" for count in args.utterances}
        for count, path in lists.items():
            with context.Pool(1) as pool:
                pool.apply(write_list, (path, count, args.data_type, args.files))

        measured: dict[int, list[dict[str, float]]] = {count: [] for count in lists}
        for _ in range(args.repeats):
            for count, path in lists.items():
                index_of(path).unlink(missing_ok=True)
                jobs = [
                    (index, ()),
                    *((costs, (name,)) for name in CONFIGS),
                    (read, (args.batches,)),
                ]
                figures: dict[str, float] = {}
                for function, more in jobs:
                    with context.Pool(1) as pool:
                        figures |= pool.apply(function, (path, args.data_type, *more))

                measured[count].append(figures)

    return measured


def main() -> None:
    """Measure lists of every length and print a table."""
    args = parse_arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(
        f"{'utterances':>10}{'first, s':>10}{'read, us':>10}{'plan, us':>10}{'RSS, MB':>9}{'own, MB':>9}"
    )
    results: list[dict[str, Any]] = []

    for count, runs in measure_lists(args).items():
        result = {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
        results.append({"utterances": count, **result})
        figures = (
            result[name] for name in ("first_batch_s", "read_us", "plan_us", "rss_mb", "own_mb")
        )
        print("{:10}{:10.2f}{:10.0f}{:10.1f}{:9.0f}{:9.0f}".format(count, *figures))

    print(
        f"{'utterances':>10}{'index, s':>10}{'index, MB':>10}"
        + "".join(f"{name + ', s':>14}" for name in CONFIGS)
    )
    for result in results:
        print("{utterances:10}{index_s:10.2f}{index_mb:10.0f}".format(**result), end="")
        print("".join(f"{result[f'{name}_s']:14.2f}" for name in CONFIGS))

    costs = [result["read_us"] + result["plan_us"] for result in results]
    report = {
        "cost_spread": round(max(costs) / min(costs) - 1, 3),
        "data_type": args.data_type,
        "results": results,
    }
    print(f"spread: {100 * report['cost_spread']:.1f} %")
    if args.json:
        print(json.dumps({**report, **provenance("torch", "numpy")}))


if __name__ == "__main__":
    run(main)
