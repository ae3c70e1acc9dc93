#!/usr/bin/env python3
"""Reading shards over HTTP, with latency in every request, beside reading them from local disk, in one run.

Synthetic speech is packed into shards; a server in a process of its own shows them. Epochs of the whole loader (fbank,
spec-aug, padded batches) alternate between local disk and HTTP, each HTTP epoch with an empty cache. "Steady" is what
comes after the first --warm share of the batches. Server, workers and prefetching share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import torch

from wenet_uio.cli import run
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.encoding import encode_audio
from wenet_uio.dataset.shard import PackedSample, write_shard
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.tokenizer import Tokenizer

RATE = 16000
CONF = {
    "speed_perturb": False,
    "spec_aug": True,
    "fbank_conf": {"num_mel_bins": 80, "dither": 0.1},
    "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 12000},
}


class Handler(BaseHTTPRequestHandler):
    """Whole files and ranges of them, each request after a pause."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder, latency = Path(), 0.0

    def log_message(self, *args) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        time.sleep(self.latency)
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        last = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(last - first))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last - 1}/{size}")
        self.end_headers()
        if with_body:
            self.wfile.flush()
            with path.open("rb") as file:
                self.connection.sendfile(file, first, last - first)


def serve(folder: Path, latency: float, port) -> None:
    """Show a folder until killed; puts its port on a queue."""
    handler = type("Slow", (Handler,), {"folder": folder, "latency": latency})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    port.put(server.server_port)
    server.serve_forever()


def make_shards(folder: Path, shards: int, per_shard: int) -> float:
    """Write shards of noise shaped like speech, 2 to 10 s each; returns the seconds of audio."""
    random = np.random.default_rng(0)
    noise = random.normal(0, 2000, 11 * RATE).astype(np.float32)
    total = 0.0
    for shard in range(shards):
        samples = []
        for number in range(per_shard):
            count = int(random.uniform(2, 10) * RATE)
            audio = encode_audio(noise[int(random.uniform(0, RATE)) :][:count, None], RATE, "wav")
            samples.append(PackedSample(f"{shard:03d}_{number:05d}", "abc", audio, "wav", count, RATE))
            total += count / RATE
        write_shard(folder / f"{shard:03d}.tar", samples)
    return total


def epoch(data_list: Path, workers: int, warm: float) -> dict[str, float]:
    """Read one epoch; audio seconds per second over all of it, and after its first share."""
    tokenizer = Tokenizer(CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3, "b": 4, "c": 5})
    config = SimpleNamespace(dataset_conf=DatasetConf(**CONF))
    began = time.perf_counter()
    loader = build_loader(str(data_list), "shard", config, tokenizer, training=True, num_workers=workers)
    batches, first, seconds, steady = len(loader), 0.0, 0.0, (0.0, 0.0)
    for number, batch in enumerate(loader):
        seconds += batch.seconds
        if batch.skipped:
            raise ValueError(f"{batch.skipped[0]}: not to be expected here")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--shard_size", type=int, default=200, help="utterances of a shard (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds a request (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--warm", type=float, default=0.2, help="share of the batches left out (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="epochs of each (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WENET_UIO_CACHE"] = str(folder / "cache")
        seconds = make_shards(folder / "shards", args.shards, args.shard_size)
        context = multiprocessing.get_context("spawn")
        port = context.Queue()
        server = context.Process(target=serve, args=(folder / "shards", args.latency, port), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{port.get()}"
        lists = {"local": folder / "local.list", "http": folder / "http.list"}
        for kind, root in (("local", folder / "shards"), ("http", url)):
            lists[kind].write_text("".join(f"{root}/{number:03d}.tar\n" for number in range(args.shards)))
        results: dict[str, list[dict[str, float]]] = {"local": [], "http": []}
        for _ in range(args.repeats):
            for kind, data_list in lists.items():
                shutil.rmtree(folder / "cache", ignore_errors=True)
                results[kind].append(epoch(data_list, args.workers, args.warm))
        server.terminate()
        server.join()
    figures = {
        f"{figure}_{kind}": round(median(result[figure] for result in found), 2)
        for kind, found in results.items()
        for figure in ("first_batch_s", "epoch", "steady")
    }
    figures |= {
        f"{figure}_ratio": figures[f"{figure}_http"] / figures[f"{figure}_local"] for figure in ("epoch", "steady")
    }
    print(f"{seconds:.0f} s of audio in {args.shards} shards, {1000 * args.latency:.0f} ms a request")
    print(f"{'':<6}{'first batch, s':>15}{'epoch, s/s':>12}{'steady, s/s':>12}")
    for kind in results:
        row = (figures[f"{figure}_{kind}"] for figure in ("first_batch_s", "epoch", "steady"))
        print(f"{kind:<6}{next(row):15.2f}{next(row):12.0f}{next(row):12.0f}")
    print(f"http / local: epoch {figures['epoch_ratio']:.3f}, steady {figures['steady_ratio']:.3f}")
    if args.json:
        print(json.dumps({**figures, **{name: value for name, value in vars(args).items() if name != "json"}}))


if __name__ == "__main__":
    run(main)
