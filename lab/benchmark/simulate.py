#!/usr/bin/env python3
"""Does the loader keep up with a cluster? An event simulation of training from a remote store, with
the real planner.

The corpus is an index without audio: --hours of audio in shards of --shard_utterances, six seconds
each on average. Each simulated rank drives the project's own loader, which decides the batches and
the shards to fetch ahead and to drop. Store, network, caches, workers and steps are simulated,
event by event. Of a larger cluster, only --simulated GPUs (a multiple of the GPUs of a node) are
simulated, with their share of the store.

    first     seconds from the start to the first step, with an empty cache
    waiting   time that the GPUs wait for data, percent of the time after the first batch: all steps, and second half
    cache     GB: the largest size of the cache of a node
    by range  samples read by range because their shard was not in the cache yet, percent of all samples
    uses      GB/s: bytes of the samples that the steps of the whole cluster train on
    reads     GB/s: bytes that the whole cluster reads from the store, mean over the simulated steps

--check compares the simulation with a real run of two small nodes, over HTTP on loopback.

Needs simpy: pip install -r lab/benchmark/requirements.txt
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cluster import Cluster, Outcome
from cluster_check import check
from cluster_ranks import simulate
from plan_scale import SparseCorpus, write_table
from provenance import benchmark_parser, provenance

from wenet_uio.base.cli import run
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.base import Facts, RemoteObject
from wenet_uio.dataset.corpus.index import Rows
from wenet_uio.dataset.plan.epoch_plan import divide
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.storage.settings import parse_bytes
from wenet_uio.dataset.storage.versions import Version

SECONDS = 6.0
"""Mean length of an utterance."""
FRAMES_PER_SECOND = 100
TAR_BYTES = 2048
"""Bytes of a sample in addition to its audio: two tar headers and the text."""
CHECKED = Cluster(
    ranks=2,
    simulated=2,
    ranks_per_node=1,
    workers=1,
    prefetch=2,
    step_seconds=0.2,
    worker_speed=1.0,
    latency=0.1,
    connection_rate=1e6,
)
"""The cluster of --check; the speed and start of workers and the start of prefetching are
measured."""


class FarCorpus(SparseCorpus):
    """An index without audio, whose shards are in a remote store."""

    def __init__(self, path: Path, bytes_per_second: float) -> None:
        super().__init__(path, Facts(is_remote=True))
        self._bytes_per_second = bytes_per_second

    def rows(self, shard: int) -> Rows:
        """Return the samples of a shard, with sizes that follow from their length."""
        rows = super().rows(shard)
        sizes = (rows.seconds * self._bytes_per_second).astype(np.uint32)
        return replace(
            rows, audio_offset=np.full(len(rows), TAR_BYTES, np.uint64), audio_size=sizes
        )

    def remote_shards(self, shards: Sequence[int] | np.ndarray) -> list[RemoteObject]:
        """Return (URI, version) of each shard."""
        return [(str(int(shard)), Version(self._size(int(shard)))) for shard in shards]

    def _size(self, shard: int) -> int:
        return int(self.seconds[shard] * self._bytes_per_second) + TAR_BYTES * int(
            self.samples[shard]
        )


def cluster_of(args: argparse.Namespace, gpus: int) -> Cluster:
    """Build the cluster that the options describe.

    Raises:
        ValueError: --simulated is not a multiple of the GPUs of a node.
    """
    simulated = min(gpus, args.simulated)
    if simulated % min(gpus, args.gpus_per_node):
        raise ValueError(
            f"--simulated {args.simulated}: not a multiple of --gpus_per_node {args.gpus_per_node}"
        )

    return Cluster(
        ranks=gpus,
        simulated=simulated,
        ranks_per_node=args.gpus_per_node,
        workers=args.workers,
        prefetch=args.prefetch,
        connections=args.connections,
        step_seconds=args.step_time,
        worker_speed=args.worker_speed,
        latency=args.latency,
        store_rate=parse_bytes(args.store_bandwidth),
        node_rate=parse_bytes(args.node_bandwidth),
        connection_rate=parse_bytes(args.connection_bandwidth),
        cache_bytes=parse_bytes(args.cache),
        worker_start=args.start_time,
        prefetch_start=args.start_time,
    )


def figures(outcome: Outcome, cluster: Cluster) -> dict[str, Any]:
    """Compute the figures of the report; those of the store are scaled to the whole cluster."""
    half = len(outcome.waits) // 2
    late, step = outcome.waits[half:], cluster.step_seconds
    samples = outcome.requests["samples"]
    scale = cluster.ranks / cluster.simulated
    trained = outcome.steps * step
    return {
        "gpus": cluster.ranks,
        "simulated": cluster.simulated,
        "steps": outcome.steps,
        "first_batch_s": round(outcome.first_batch_seconds, 2),
        "waiting_percent": round(100 * sum(outcome.waits) / (sum(outcome.waits) + trained), 2),
        "waiting_late_percent": round(100 * sum(late) / max(1e-9, sum(late) + len(late) * step), 2),
        "cache_gb": round(outcome.peak_cache_bytes / 1e9, 1),
        "by_range_percent": round(100 * samples / max(1, outcome.samples), 2),
        "requests": dict(outcome.requests),
        "store_gb_per_s": round(scale * sum(outcome.bytes.values()) / outcome.seconds / 1e9, 2),
        "needed_gb_per_s": round(scale * outcome.sample_bytes / trained / 1e9, 2),
        "audio_hours_per_hour": round(scale * outcome.audio_seconds / outcome.seconds),
    }


def one_cluster(args: argparse.Namespace, table: Path, gpus: int) -> dict[str, Any]:
    """Simulate a cluster of `gpus` GPUs that reads the corpus in `table`."""
    corpus = FarCorpus(table, args.bytes_per_second)
    batch = BatchConf(
        batch_type="dynamic", max_frames_in_batch=round(args.batch_seconds * FRAMES_PER_SECOND)
    )
    measure, cluster = (
        measure_of(DatasetConf(batch_conf=batch), training=True),
        cluster_of(args, gpus),
    )
    return figures(simulate(corpus, measure, cluster, divide(corpus, gpus), args.steps), cluster)


def compare() -> dict[str, Any]:
    """Compare the simulation with a real run (--check)."""
    with tempfile.TemporaryDirectory() as folder:
        simulated, real = check(Path(folder), CHECKED)

    report = {}
    for name, outcome in (("simulated", simulated), ("real", real)):
        report[name] = {
            "steps": outcome.steps,
            "shards_fetched": outcome.requests["shards"],
            "shard_bytes": outcome.bytes["shards"],
            "shards_of_nodes": sorted(
                f"{node} {Path(uri).stem}" for node, uri in outcome.fetched.elements()
            ),
            "samples_by_range": outcome.requests["samples"],
            "peak_cache_bytes": outcome.peak_cache_bytes,
            "audio_seconds": round(outcome.audio_seconds, 2),
            "first_batch_s": round(outcome.first_batch_seconds, 2),
            "seconds_after_it": round(outcome.seconds - outcome.first_batch_seconds, 2),
        }

    return report


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)

    def option(name: str, default: Any, text: str, **more: Any) -> None:
        parser.add_argument(
            name, default=default, type=type(default), help=f"{text} (default: %(default)s)", **more
        )

    parser.add_argument(
        "--gpus", nargs="+", type=int, default=[8, 64, 1024], help="default: 8 64 1024"
    )
    option("--simulated", 16, "largest number of simulated GPUs; the run time grows with it")
    option("--steps", 1000, "training steps")
    option("--hours", 10_000_000, "hours of audio")
    option("--shard_utterances", 600, "utterances of a shard, six seconds each")
    option(
        "--bytes_per_second",
        32_000.0,
        "bytes of a second of audio: 32,000 for wav at 16 kHz, about 17,000 for flac",
    )
    option("--batch_seconds", 300.0, "padded seconds of a batch")
    option("--step_time", 0.3, "seconds of a training step")
    option("--gpus_per_node", 8, "ranks of a node, which share a cache and a network link")
    option("--workers", 4, "data workers of each rank")
    option("--prefetch", 8, "batches that each worker prepares ahead")
    option("--worker_speed", 3000.0, "speed of a worker: audio seconds per second")
    option("--connections", 4, "parallel downloads of each rank")
    option("--latency", 0.03, "seconds from a request to its first byte")
    option("--store_bandwidth", "64G", "bytes per second of the store")
    option("--node_bandwidth", "2.5G", "bytes per second into a node")
    option("--connection_bandwidth", "100M", "bytes per second of one connection")
    option("--cache", "500G", "bytes of the cache of a node")
    option("--start_time", 2.0, "seconds until workers and prefetching start")
    parser.add_argument(
        "--check", action="store_true", help="compare the simulation with a real run"
    )

    return parser.parse_args()


def simulate_clusters(args: argparse.Namespace) -> dict[str, Any]:
    """Simulate a cluster of every size in --gpus and print a row of the table for each."""
    report = {"clusters": [], **vars(args)}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.idx"
        shards = round(3600 * args.hours / (SECONDS * args.shard_utterances))
        write_table(table, shards, args.shard_utterances)
        print(
            f"{'GPUs':>6}{'first, s':>10}{'waiting, %':>12}{'late, %':>9}{'cache, GB':>11}{'by range, %':>13}"
            f"{'uses GB/s':>11}{'reads GB/s':>12}"
        )

        for gpus in args.gpus:
            figures = one_cluster(args, table, gpus)
            report["clusters"].append(figures)
            print(
                f"{gpus:6}{figures['first_batch_s']:10.1f}{figures['waiting_percent']:12.2f}"
                f"{figures['waiting_late_percent']:9.2f}{figures['cache_gb']:11.1f}{figures['by_range_percent']:13.2f}"
                f"{figures['needed_gb_per_s']:11.2f}{figures['store_gb_per_s']:12.2f}",
                flush=True,
            )

    return report


def main() -> None:
    """Run the simulations, or with --check the comparison with a real run."""
    args = parse_arguments()
    if args.check:
        report = compare()
        for name in report["real"]:
            if name != "shards_of_nodes":
                print(f"{name:<20}{report['simulated'][name]:>14}{report['real'][name]:>14}")
    else:
        report = simulate_clusters(args)

    if args.json:
        print(json.dumps({**report, **provenance("simpy", "numpy")}))


if __name__ == "__main__":
    run(main)
