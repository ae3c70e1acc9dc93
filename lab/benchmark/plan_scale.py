#!/usr/bin/env python3
"""Planning ten million hours: time to the first batch of a rank, memory, and time per step.

The shard table is generated, with one hour of audio in each shard, and is memory-mapped like a real
one. The samples of a shard are generated when the plan reads its index. Every world size is
measured in its own process; the clock starts when the process opens the table. With `--sources` the
shards are those of a mixture of equal sources, which share one table.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from wenet_uio.base.cli import run
from wenet_uio.base.files import written_aside
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.base import Corpus, Facts, StoredCorpus
from wenet_uio.dataset.corpus.columns import read_columns, write_columns
from wenet_uio.dataset.corpus.index import Rows, Summary
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.types import SampleRef, Utterance

WORLD_SIZES = (1, 8, 64, 512, 1024)
ROWS = 5000
"""Planned rows of every lane; a group has about 1600, so this is the first group and at least two
others."""


class SparseCorpus(StoredCorpus):
    """A shard table without shards."""

    def __init__(self, path: Path, facts: Facts = Facts()) -> None:  # noqa: B008 - immutable
        table, meta = read_columns(path)
        super().__init__(str(path), table, [], Summary(**meta), facts)

    def rows(self, shard: int) -> Rows:
        """Generate the samples of a shard; they are the same at every call."""
        random = np.random.default_rng(shard)
        samples = int(self.samples[shard])
        seconds = np.clip(random.lognormal(np.log(5), 0.6, samples), 0.5, 30)
        seconds = np.clip(seconds * (float(self.seconds[shard]) / seconds.sum()), 0.5, 30)
        zeros = np.zeros(samples, np.uint64)

        return Rows(
            key_hash=random.integers(0, 2**64, samples, dtype=np.uint64),
            num_samples=(seconds * 16000).astype(np.uint32),
            sample_rate=np.full(samples, 16000, np.uint32),
            text_length=np.full(samples, 20, np.uint32),
            **dict.fromkeys(
                ("audio_offset", "audio_size", "text_offset", "text_size", "key_end"), zeros
            ),
            keys=np.empty(0, np.uint8),
        )

    def read(self, ref: SampleRef) -> Utterance:
        """Fail: planning must not read audio."""
        raise AssertionError("the plan reads no audio")


def write_table(path: Path, shards: int, utterances: int = 600) -> None:
    """Write a table of shards with about `utterances` samples each, of six seconds on average."""
    random = np.random.default_rng(0)
    samples = random.integers(2 * utterances // 3, 4 * utterances // 3, shards).astype(np.uint32)
    table = {
        "samples": samples,
        "seconds": samples * random.uniform(5.5, 6.5, shards),
        "shortest": np.full(shards, 0.5, np.float32),
        "longest": np.full(shards, 30.0, np.float32),
        "shortest_text": np.full(shards, 20, np.uint32),
        "longest_text": np.full(shards, 20, np.uint32),
        "digest": random.integers(0, 2**64, shards, dtype=np.uint64),
    }
    summary = {
        "samples": int(samples.sum()),
        "seconds": float(table["seconds"].sum()),
        "digest": "",
    }
    with written_aside(path) as file:
        write_columns(file, table, summary)


def open_table(path: Path, sources: int) -> Corpus:
    """Open the table, or the first pass of a mixture of so many corpora with this table."""
    if sources == 1:
        return SparseCorpus(path)
    parts = [WeightedCorpus(SparseCorpus(path), 1 / sources) for _ in range(sources)]
    per_pass = sum(part.corpus.num_samples for part in parts)
    return Passes(Mixture("mixture", parts, per_pass, False)).corpus_of(0)


def measure(path: Path, world_size: int, sources: int) -> dict[str, float]:
    """Plan the steps of one rank (the middle one): time to the first batch, milliseconds per step,
    memory.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    corpus = open_table(path, sources)
    conf = DatasetConf(
        speed_perturb=True, batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=30000)
    )
    plan = EpochPlan(
        corpus,
        measure_of(conf, training=True),
        seed=1,
        epoch=0,
        division=divide(corpus, world_size),
    )
    rank = world_size // 2
    assert len(plan.step(0, world_size, rank))
    first, cpu = time.perf_counter() - began, time.process_time() - cpu
    steps = min(ROWS, plan.rows) * plan.lanes // world_size
    began = time.perf_counter()
    for step in range(1, steps):
        plan.step(step * world_size, world_size, rank)

    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "world_size": world_size,
        "lanes": plan.lanes,
        "first_batch_s": round(first, 3),
        "first_batch_cpu_s": round(cpu, 3),
        "ms_per_step": round(1000 * seconds / (steps - 1), 3),
        "memory_mb": round(peak / 1024, 1),
        "memory_before_mb": round(before / 1024, 1),
    }


def main() -> None:
    """Measure every world size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shards", type=int, default=10_000_000, help="shards (default: %(default)s)"
    )
    parser.add_argument(
        "--world_size",
        type=int,
        default=WORLD_SIZES[-1],
        help="largest number of ranks (default: %(default)s)",
    )
    parser.add_argument(
        "--sources", type=int, default=1, help="sources of a mixture (default: %(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON on the last line"
    )
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.idx"
        context = multiprocessing.get_context("spawn")
        writer = context.Process(target=write_table, args=(path, args.shards // args.sources))
        writer.start()
        writer.join()
        results = []
        sizes = sorted({*(size for size in WORLD_SIZES if size < args.world_size), args.world_size})
        for world_size in sizes:
            with context.Pool(1) as pool:  # its own process
                results.append(pool.apply(measure, (path, world_size, args.sources)))
            print(results[-1], file=sys.stderr)

    worst = {
        name: max(result[name] for result in results)
        for name in ("first_batch_s", "memory_mb", "ms_per_step")
    }
    if args.json:
        print(
            json.dumps(
                {"shards": args.shards, "sources": args.sources, **worst, "by_world_size": results}
            )
        )


if __name__ == "__main__":
    run(main)
