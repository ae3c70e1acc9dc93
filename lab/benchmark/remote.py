#!/usr/bin/env python3
"""Read shards over HTTP with latency, compared in one run with local disk.

Noise is packed into shards; a server in its own process serves them. Epochs of the whole loader
(fbank, spec-aug, padded batches) alternate between local disk and HTTP; each HTTP epoch begins with
an empty cache. "Steady" is the speed after the first --warm share of the batches. Server, workers
and prefetching share the cores of the machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from corpus import open_loader, write_audio
from provenance import benchmark_parser, settings
from slow_server import serve

from wenet_uio.base.cli import run
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

CONF = {"spec_aug": True, "fbank_conf": {"num_mel_bins": 80, "dither": 0.1}}


def epoch(data_list: Path, workers: int, warm: float) -> dict[str, float]:
    """Read one epoch; return audio seconds per second of the whole epoch, and after its first
    `warm` share.
    """
    began = time.perf_counter()
    loader = open_loader(data_list, "shard", CONF, num_workers=workers)
    batches, first, seconds, steady = len(loader), 0.0, 0.0, (0.0, 0.0)

    for number, batch in enumerate(loader):
        seconds += batch.seconds
        if batch.skipped:
            raise ValueError(f"{batch.skipped[0]}: the benchmark expects no skipped sample")
        if number == 0:
            first = time.perf_counter() - began
        if number == int(warm * batches):
            steady = (time.perf_counter(), seconds)

    end = time.perf_counter()
    if loader.prefetch:
        loader.prefetch.close()

    return {
        "first_batch_s": first,
        "epoch": seconds / (end - began),
        "steady": (seconds - steady[1]) / (end - steady[0]),
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--shards", type=int, default=16, help="shards (default: %(default)s)")
    parser.add_argument(
        "--shard_size", type=int, default=200, help="utterances of a shard (default: %(default)s)"
    )
    parser.add_argument(
        "--latency",
        type=float,
        default=0.05,
        help="seconds from a request to its answer (default: %(default)s)",
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="data workers (default: %(default)s)"
    )
    parser.add_argument(
        "--warm",
        type=float,
        default=0.2,
        help='share of the first batches that "steady" leaves out (default: %(default)s)',
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="epochs of each kind (default: %(default)s)"
    )

    return parser.parse_args()


def main() -> None:
    """Measure epochs from local disk and over HTTP, in turn."""
    args = parse_arguments()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WENET_UIO_CACHE"] = str(folder / "cache")
        lines = write_audio(folder / "wav", args.shards * args.shard_size)
        local = folder / "local.list"
        make_shard_list(
            lines, folder / "shards", str(local), ShardOptions(per_shard=args.shard_size)
        )
        context = multiprocessing.get_context("spawn")
        port = context.Queue()
        server = context.Process(
            target=serve, args=(folder / "shards", port, args.latency), daemon=True
        )
        server.start()
        url = f"http://127.0.0.1:{port.get()}"
        lists = {"local": local, "http": folder / "http.list"}
        lists["http"].write_text(local.read_text().replace(str(folder / "shards"), url))
        results: dict[str, list[dict[str, float]]] = {"local": [], "http": []}

        for _ in range(args.repeats):
            for kind, data_list in lists.items():
                shutil.rmtree(folder / "cache", ignore_errors=True)
                results[kind].append(epoch(data_list, args.workers, args.warm))

        server.terminate()
        server.join()

    figures = {
        f"{figure}_{kind}": round(median(result[figure] for result in rounds), 2)
        for kind, rounds in results.items()
        for figure in ("first_batch_s", "epoch", "steady")
    }
    figures |= {
        f"{figure}_ratio": figures[f"{figure}_http"] / figures[f"{figure}_local"]
        for figure in ("epoch", "steady")
    }
    print(
        f"{args.shards} shards of {args.shard_size} utterances, {1000 * args.latency:.0f} ms per "
        "request"
    )
    print(f"{'':<6}{'first batch, s':>15}{'epoch, s/s':>12}{'steady, s/s':>12}")
    for kind in results:
        row = (figures[f"{figure}_{kind}"] for figure in ("first_batch_s", "epoch", "steady"))
        print(f"{kind:<6}{next(row):15.2f}{next(row):12.0f}{next(row):12.0f}")

    print(f"http / local: epoch {figures['epoch_ratio']:.3f}, steady {figures['steady_ratio']:.3f}")
    if args.json:
        print(json.dumps({**figures, **settings(args)}))


if __name__ == "__main__":
    run(main)
