#!/usr/bin/env python3
"""Does the loader keep up? A simulated cluster trains on a store that is far, driven by the project's real planner.

The corpus is an index without audio, of --hours, in shards of --shard_utterances of six seconds on average. Each
simulated rank drives the project's own loader, which says what its batches are, and what to fetch ahead and to drop;
store, network, caches, workers and steps are simulated, event by event. At most --simulated GPUs, whole nodes, are
simulated of a larger cluster, with their share of the store.

    first     seconds from the start to the first step, with an empty cache
    waiting   percent of the time after it in which the GPUs wait for data: of all steps, and of the second half of them
    cache     GB of the fullest node, at its fullest
    by range  samples, percent of those read, that were wanted before their shard was there
    store     GB/s that the whole cluster reads: what its training uses up, and on average over the simulated steps

--check compares the simulation with a real run of two small nodes, over HTTP on loopback.

Needs simpy: pip install -r tools/benchmark/requirements.txt
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cluster import Cluster, Outcome
from cluster_check import check
from cluster_ranks import simulate
from plan_scale import SparseCorpus, write_table
from provenance import provenance

from wenet_uio.cli import run
from wenet_uio.config.dataset import BatchConf, DatasetConf
from wenet_uio.dataset.corpus.index import Rows
from wenet_uio.dataset.plan.epoch_plan import choose_lanes
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.storage.settings import parse_bytes
from wenet_uio.dataset.storage.versions import Version

SECONDS = 6.0
"""Of an utterance, on average."""
FRAMES_PER_SECOND = 100
TAR_BYTES = 2048
"""Of a sample beside its audio: two headers, and a text."""
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
"""What --check runs; how fast workers are, and when they and the prefetching begin, is measured."""


class FarCorpus(SparseCorpus):
    """An index without audio, of shards in a store."""

    is_remote = True

    def __init__(self, path: Path, bytes_per_second: float) -> None:
        super().__init__(path)
        self._bytes_per_second = bytes_per_second

    def rows(self, shard: int) -> Rows:
        rows = super().rows(shard)
        sizes = (rows.seconds * self._bytes_per_second).astype(np.uint32)
        return replace(rows, audio_offset=np.full(len(rows), TAR_BYTES, np.uint64), audio_size=sizes)

    def remote_shards(self, shards: np.ndarray) -> list[tuple[str, Version]]:
        return [(str(int(shard)), Version(self._size(int(shard)))) for shard in shards]

    def _size(self, shard: int) -> int:
        return int(self.seconds[shard] * self._bytes_per_second) + TAR_BYTES * int(self.samples[shard])


def cluster_of(args: argparse.Namespace, gpus: int) -> Cluster:
    simulated = min(gpus, args.simulated)
    if simulated % min(gpus, args.gpus_per_node):
        raise ValueError(f"--simulated {args.simulated}: not whole nodes of {args.gpus_per_node}")
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
    corpus = FarCorpus(table, args.bytes_per_second)
    batch = BatchConf(batch_type="dynamic", max_frames_in_batch=round(args.batch_seconds * FRAMES_PER_SECOND))
    measure, cluster = measure_of(DatasetConf(batch_conf=batch), training=True), cluster_of(args, gpus)
    return figures(simulate(corpus, measure, cluster, choose_lanes(corpus, gpus), args.steps), cluster)


def compare() -> dict[str, Any]:
    """--check."""
    with tempfile.TemporaryDirectory() as folder:
        simulated, real = check(Path(folder), CHECKED)
    report = {}
    for name, outcome in (("simulated", simulated), ("real", real)):
        report[name] = {
            "steps": outcome.steps,
            "shards_fetched": outcome.requests["shards"],
            "shard_bytes": outcome.bytes["shards"],
            "shards_of_nodes": sorted(f"{node} {Path(uri).stem}" for node, uri in outcome.fetched.elements()),
            "samples_by_range": outcome.requests["samples"],
            "peak_cache_bytes": outcome.peak_cache_bytes,
            "audio_seconds": round(outcome.audio_seconds, 2),
            "first_batch_s": round(outcome.first_batch_seconds, 2),
            "seconds_after_it": round(outcome.seconds - outcome.first_batch_seconds, 2),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def option(name: str, default: Any, text: str, **more: Any) -> None:
        parser.add_argument(name, default=default, type=type(default), help=f"{text} (default: %(default)s)", **more)

    parser.add_argument("--gpus", nargs="+", type=int, default=[8, 64, 1024], help="default: 8 64 1024")
    option("--simulated", 16, "GPUs that are simulated at most; events are in proportion")
    option("--steps", 1000, "of training")
    option("--hours", 10_000_000, "of audio")
    option("--shard_utterances", 600, "of six seconds")
    option("--bytes_per_second", 32_000.0, "of audio: 32,000 is wav of 16 kHz, flac some 17,000")
    option("--batch_seconds", 300.0, "of a batch, padded")
    option("--step_time", 0.3, "seconds of a training step")
    option("--gpus_per_node", 8, "ranks that share a cache and a network")
    option("--workers", 4, "of each rank")
    option("--prefetch", 8, "batches that each worker keeps ready")
    option("--worker_speed", 3000.0, "audio seconds a second that a worker makes into batches")
    option("--connections", 4, "downloads at a time, of each rank")
    option("--latency", 0.03, "seconds of a request to the store")
    option("--store_bandwidth", "64G", "bytes per second of the store")
    option("--node_bandwidth", "2.5G", "bytes per second into a node")
    option("--connection_bandwidth", "100M", "bytes per second of a connection")
    option("--cache", "500G", "bytes of a node's cache")
    option("--start_time", 2.0, "seconds until workers and prefetching run")
    parser.add_argument("--check", action="store_true", help="compare with a real run instead")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    args = parser.parse_args()
    if args.check:
        report = compare()
        for name in report["real"]:
            if name != "shards_of_nodes":
                print(f"{name:<20}{report['simulated'][name]:>14}{report['real'][name]:>14}")
    else:
        report = {"clusters": [], **vars(args)}
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "table.idx"
            shards = round(3600 * args.hours / (SECONDS * args.shard_utterances))
            write_table(table, shards, args.shard_utterances)
            print(
                f"{'GPUs':>6}{'first, s':>10}{'waiting, %':>12}{'late, %':>9}{'cache, GB':>11}{'by range, %':>13}",
                end="",
            )
            print(f"{'uses GB/s':>11}{'reads GB/s':>12}")
            for gpus in args.gpus:
                found = one_cluster(args, table, gpus)
                report["clusters"].append(found)
                print(
                    f"{gpus:6}{found['first_batch_s']:10.1f}{found['waiting_percent']:12.2f}"
                    f"{found['waiting_late_percent']:9.2f}{found['cache_gb']:11.1f}{found['by_range_percent']:13.2f}"
                    f"{found['needed_gb_per_s']:11.2f}{found['store_gb_per_s']:12.2f}",
                    flush=True,
                )
    if args.json:
        print(json.dumps({**report, **provenance("simpy", "numpy")}))


if __name__ == "__main__":
    run(main)
