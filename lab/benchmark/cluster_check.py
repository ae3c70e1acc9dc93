"""A small real cluster: a process for each rank, a cache folder for each node, and a slow HTTP
server on loopback.

The ranks read an epoch as training does, with a pause for each step, and count the quantities of
the simulation.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch
from cluster import Cluster, Outcome
from cluster_ranks import SEED, simulate
from corpus import open_loader, write_audio
from slow_server import serve

from wenet_uio.base.files import read_lines
from wenet_uio.dataset.plan import epoch_plan as plan
from wenet_uio.dataset.plan import lanes
from wenet_uio.dataset.storage import cache, checksums
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

UTTERANCES, PER_SHARD, SCALE = 480, 20, 0.125
"""A shard has about 0.7 MB."""
CONF = {
    "fbank_conf": {"num_mel_bins": 80},
    "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 1000},
}
POLL_SECONDS = 0.01
CALIBRATION_BATCHES = 30


class RankResult(NamedTuple):
    """Measurements of one rank."""

    waits: list[float]
    """Seconds that each step waited for data."""
    audio_seconds: float
    began: float
    """Time of the start, on the clock of time.time()."""
    seconds: float
    """From the start to the end of the last step."""


@contextmanager
def small_groups() -> Iterator[None]:
    """Give this small corpus a lane for each rank, and groups of three shards."""
    with (
        patch.multiple(plan, WHOLE_CORPUS=0, LEAST_LANES=1),
        patch.multiple(lanes, GROUP_SHARDS=3, GROUP_UTTERANCES=1, GROUP_BATCHES=1),
    ):
        yield


def check(folder: Path, cluster: Cluster) -> tuple[Outcome, Outcome]:
    """Run an epoch in the simulation and in a real cluster, and return the counts of both.

    The simulation gets three measured values: the speed of a worker, the start of workers, the
    start of prefetching.
    """
    lines = write_audio(folder / "wav", UTTERANCES, scale=SCALE)
    local, remote = folder / "local.list", folder / "remote.list"
    make_shard_list(lines, folder / "shards", str(local), ShardOptions(per_shard=PER_SHARD))
    context = multiprocessing.get_context("spawn")
    port, log = context.Queue(), folder / "requests"
    arguments = (folder / "shards", port, cluster.latency, cluster.connection_rate, log)
    server = context.Process(target=serve, args=arguments, daemon=True)
    server.start()

    try:
        remote.write_text(
            local.read_text().replace(str(folder / "shards"), f"http://127.0.0.1:{port.get()}")
        )
        with patch.dict(os.environ, WENET_UIO_CACHE=str(folder / "unused")):
            loader = open_loader(remote, "shard", CONF)  # indexes it

        log.write_text("")
        real, starts = real_run(folder, remote, cluster, log)
    finally:
        server.terminate()
        server.join()

    for number, node in enumerate(node_folders(folder, cluster)):
        with patch.dict(os.environ, WENET_UIO_CACHE=str(node)):
            for uri, version in loader.corpus.remote_shards(range(loader.corpus.num_shards)):
                if version and (copy := cache.copy_of(uri, version)):
                    copy.close()
                    real.fetched[number, uri] += 1

    cluster = replace(cluster, worker_speed=measured_speed(local), **starts)
    with small_groups():
        choice = plan.divide(loader.corpus, cluster.ranks)
        return simulate(loader.corpus, loader.cursor.measure, cluster, choice), real


def measured_speed(data_list: Path) -> float:
    """Measure how fast one process makes batches of a local list: seconds of audio per second."""
    loader = open_loader(data_list, "shard", CONF)
    works = [
        work
        for work, _ in zip(
            (work for _, work in loader.cursor.upcoming()), range(CALIBRATION_BATCHES), strict=False
        )
    ]
    loader.reader[works[0]]
    began = time.perf_counter()
    seconds = sum(loader.reader[work].seconds for work in works)

    return seconds / (time.perf_counter() - began)


def real_run(
    folder: Path, data_list: Path, cluster: Cluster, log: Path
) -> tuple[Outcome, dict[str, float]]:
    """Run an epoch with all ranks; return its counts, and the seconds until workers and prefetching
    began.
    """
    context = multiprocessing.get_context("spawn")
    barrier, outcomes = context.Barrier(cluster.ranks), context.Queue()
    ranks = [
        context.Process(target=run_rank, args=(rank, cluster, folder, data_list, barrier, outcomes))
        for rank in range(cluster.ranks)
    ]
    for rank in ranks:
        rank.start()

    outcome, running = Outcome(), True
    while running:
        running = any(rank.is_alive() for rank in ranks) and outcomes.qsize() < cluster.ranks
        outcome.peak_cache_bytes = max(
            [outcome.peak_cache_bytes, *map(taken, node_folders(folder, cluster))]
        )
        time.sleep(POLL_SECONDS)

    results: list[RankResult] = [outcomes.get(timeout=60) for _ in ranks]
    for rank in ranks:
        rank.join()

    waits = results[0].waits
    outcome.first_batch_seconds, outcome.waits, outcome.steps = waits[0], waits[1:], len(waits)
    outcome.seconds = results[0].seconds
    outcome.audio_seconds = sum(result.audio_seconds for result in results)
    starts = count_requests(log, outcome, began=min(result.began for result in results))
    # without any range request, the workers found every shard in the cache
    starts["worker_start"] = min(waits[0], starts.get("worker_start", waits[0]))

    return outcome, starts


def count_requests(log: Path, outcome: Outcome, began: float) -> dict[str, float]:
    """Add the requests in the log of the server to `outcome`; return the seconds to the first
    request of each kind.
    """
    starts: dict[str, float] = {}
    for line in read_lines(log):
        kind, start = ("samples", "worker_start") if line["range"] else ("shards", "prefetch_start")
        starts.setdefault(start, line["time"] - began)
        outcome.requests[kind] += 1
        outcome.bytes[kind] += line["bytes"]

    return starts


def node_folders(folder: Path, cluster: Cluster) -> list[Path]:
    """Return the cache folder of each node."""
    return [folder / f"node{number}" for number in range(cluster.nodes)]


def taken(node: Path) -> int:
    """Return the bytes of all copies in the cache of a node, complete or still downloading, without
    their checksums.
    """
    total = 0
    for path in node.glob("uio1/*/*.tar*"):
        if path.suffix == checksums.SUFFIX:
            continue
        with suppress(FileNotFoundError):  # renamed since the glob
            total += path.stat().st_size

    return total


def run_rank(
    rank: int, cluster: Cluster, folder: Path, data_list: Path, barrier: Barrier, outcomes: Queue
) -> None:
    """Read an epoch as one rank and put a RankResult on `outcomes`; a step waits for all ranks, then
    sleeps.
    """
    torch.set_num_threads(1)
    os.environ["WENET_UIO_CACHE"] = str(
        node_folders(folder, cluster)[rank // cluster.ranks_per_node]
    )
    os.environ["WENET_UIO_CACHE_BYTES"] = str(int(min(cluster.cache_bytes, 1 << 40)))
    options = {
        "rank": rank,
        "world_size": cluster.ranks,
        "num_workers": cluster.workers,
        "prefetch": cluster.prefetch,
    }

    with small_groups():
        loader = open_loader(data_list, "shard", CONF, seed=SEED, **options)
        barrier.wait()
        began, ended = time.time(), time.perf_counter()
        waits, audio_seconds = [], 0.0

        for batch in loader:
            if batch.skipped:
                raise ValueError(f"{batch.skipped[0]}: the benchmark expects no skipped sample")
            audio_seconds += batch.seconds
            if batch.closes_step:
                barrier.wait()
                waits.append(time.perf_counter() - ended)
                time.sleep(cluster.step_seconds)
                ended = time.perf_counter()

    assert loader.prefetch is not None  # the corpus is remote
    loader.prefetch.close()
    seconds = sum(waits) + len(waits) * cluster.step_seconds
    outcomes.put(RankResult(waits, audio_seconds, began, seconds))
