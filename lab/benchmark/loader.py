#!/usr/bin/env python3
"""Our loader compared in one run with WebDataset and Lhotse: from tar files to padded fbank
batches.

All of them do the same work on the same noise (16-bit wav, 16 kHz, 1 to 16 s, in shards of 500):
read, 80-bin fbank without dither, spec-augment, shuffle, dynamic batches of 12,000 frames, pad.

    shard, raw             ours, from shards and from separate files
    shard_cold, raw_cold   the same, with an empty page cache
    shard_noise, raw_noise shard and raw, with a changed level, and with noise from a list of files
    for half of the
                           utterances: the defaults of `gain_conf` and `noise_conf`
    waveform, flac         ours, batches of waveforms (the accelerator would compute the features) from wav shards and
                           from flac shards
    decoding               libsndfile decodes those flac shards and does nothing else: the upper limit of `flac`
    parquet                ours, from parquet with row groups of 500, after they were unpacked into the cache
    parquet_unpacked       the same, with an empty cache: they are unpacked during the epoch
    mds, litdata           ours, from shards of MosaicML's Streaming and from chunks of LitData, unpacked before
    nemo                   ours, from a tarred set of NeMo
    tensors                ours, from shards of WebDataset whose audio is an array of 16-bit samples
    ark                    ours, from features that Kaldi's compressed archive holds: no fbank is computed
    webdataset, lhotse     the other loaders

Before an epoch its files are read into the page cache, or dropped from it (_cold). webdataset is
the chain of WeNet's loader; lhotse uses Shar and DynamicBucketingSampler. Every epoch runs in its
own process, on one thread. Rounds of all kinds alternate; a figure is the median of its rounds.

    speed    audio seconds per second, from opening the list to the last batch, without imports
    by CPU   audio seconds per CPU second of all processes; other work on the machine hardly changes this figure
    first    seconds to the first batch
    padding  padding in percent of all frames of the batches (of all samples for waveform batches)
    memory   MB: peak of the process, plus peak of its largest worker times the number of workers; shared pages count
             in each

Needs webdataset, lhotse and pyarrow: pip install -r lab/benchmark/requirements.txt. The packages
mosaicml-streaming, litdata and kaldi_native_io write the corpus of mds, litdata and ark. Without
--kinds, all kinds are measured whose packages are installed.
"""

from __future__ import annotations

import argparse
import io
import json
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import soundfile
import torch
from corpus import MEAN, RATE, open_loader, write_audio
from loader_formats import SHARD_SIZE, WRITERS, list_of, type_of, use_cache, write_format
from loader_peers import lhotse_batches, webdataset_batches, write_shar
from provenance import benchmark_parser, cpu_seconds, provenance

from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor
from wenet_uio.dataset.corpus.shard_index import kept_folder, shard_index
from wenet_uio.dataset.formats.data_list import RawLine, parse_raw_line
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import ShardOptions

COLD = "_cold"
NOISE = "_noise"
FOLDERS = {
    "shard": "shards",
    "raw": "wav",
    "shard_cold": "shards",
    "raw_cold": "wav",
    "shard_noise": "shards",
    "raw_noise": "wav",
    "waveform": "shards",
    "flac": "flac",
    "decoding": "flac",
    "parquet": "parquet",
    "parquet_unpacked": "parquet",
    "mds": "mds",
    "litdata": "litdata",
    "nemo": "nemo",
    "tensors": "tensors",
    "ark": "ark",
    "webdataset": "shards",
    "lhotse": "shar",
}
"""The folder that each kind reads."""
PEERS = ("webdataset", "lhotse")


def installed() -> list[str]:
    """Return the kinds whose packages are installed."""
    packages = {"mds": "streaming", "litdata": "litdata", "ark": "kaldi_native_io"}
    return [kind for kind in FOLDERS if kind not in packages or find_spec(packages[kind])]


def make_corpus(folder: Path, hours: float, kinds: Sequence[str]) -> None:
    """Write wav files, shards of wav and of flac, their lists, a Lhotse Shar, and the other formats
    of `kinds`.
    """
    if not (folder / "complete").exists():
        write_parts(write_audio(folder / "wav", round(3600 * hours / MEAN)), folder)
    for name in sorted({FOLDERS[kind] for kind in kinds} & WRITERS.keys()):
        write_format(name, [parse_raw_line(line) for line in (folder / "wav.list").open()], folder)


def write_parts(lines: list[RawLine], folder: Path) -> None:
    """Write shards of wav and of flac, lists, and a Lhotse Shar."""
    make_raw_list(lines, str(folder / "wav.list"))
    make_shard_list(
        lines, folder / "shards", str(folder / "shards.list"), ShardOptions(per_shard=SHARD_SIZE)
    )
    flac = ShardOptions(per_shard=SHARD_SIZE, storing=Storing("flac"))
    make_shard_list(lines, folder / "flac", str(folder / "flac.list"), flac)
    write_shar(lines, folder / "shar", SHARD_SIZE)
    os.sync()
    (folder / "complete").touch()


def prepare_page_cache(folder: Path, cold: bool) -> None:
    """Read all files of a folder into the page cache, or drop them from it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                if cold:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    while file.read(1 << 20):
                        pass


def our_batches(kind: str, folder: Path, workers: int) -> Iterator[tuple[float, int, int]]:
    """Yield for each batch: seconds, frames (samples for waveforms) without padding, and with
    padding.
    """
    waveforms = kind in ("waveform", "flac")
    use_cache(folder, empty=kind == "parquet_unpacked")
    noise: dict[str, Any] = {"noise_conf": {"data_list": str(folder / "wav.list")}, "gain_conf": {}}
    conf = noise if kind.endswith(NOISE) else None
    loader = open_loader(
        list_of(folder, FOLDERS[kind]),
        type_of(FOLDERS[kind]),
        conf,
        num_workers=workers,
        defer_features=waveforms,
    )
    for batch in loader:
        if batch.skipped:
            raise ValueError(f"{batch.skipped[0]}: the benchmark expects no skipped sample")

        padded = batch.deferred.waveforms if batch.deferred else batch.feats[:, :, 0]
        lengths = batch.deferred.lengths if batch.deferred else batch.feats_lengths
        yield batch.seconds, int(lengths.sum()), padded.numel()


def decoded_shards(folder: Path, workers: int) -> Iterator[tuple[float, int, int]]:
    """Decode the flac shards, in this process or in workers; yield (seconds, samples, samples) of
    each shard.
    """
    tars = (folder / "flac.list").read_text().split()
    samples: Iterable[int] = map(decode_shard, tars)
    if workers:
        samples = Executor(workers).map(decode_shard, tars, "decode", len(tars))

    for count in samples:
        yield count / RATE, count, count


def decode_shard(tar: str) -> int:
    """Decode all audio of a shard; return the number of samples."""
    rows, _ = shard_index(tar, kept_folder(tar))
    with open(tar, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        places = zip(rows.audio_offset.tolist(), rows.audio_size.tolist(), strict=True)
        encoded = (io.BytesIO(data[offset : offset + size]) for offset, size in places)
        return sum(len(soundfile.read(audio, dtype="int16")[0]) for audio in encoded)


MAKE = {"decoding": decoded_shards, "webdataset": webdataset_batches, "lhotse": lhotse_batches}


def measure(kind: str, folder: Path, workers: int) -> dict[str, float]:
    """Measure one epoch in this process."""
    torch.set_num_threads(1)
    prepare_page_cache(folder / FOLDERS[kind], cold=kind.endswith(COLD))
    make = MAKE.get(kind, partial(our_batches, kind.removesuffix(COLD)))
    began, cpu = time.perf_counter(), cpu_seconds()
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
        "cpu_speed": audio / (cpu_seconds() - cpu),
        "first_batch_s": first,
        "padding": 100 * (1 - real / padded),
        "memory_mb": memory / 1024,
        "audio_seconds": audio,
    }


def in_own_process(kind: str, folder: Path, workers: int) -> dict[str, float]:
    """Measure one epoch in a new process.

    Raises:
        ValueError: the process failed.
    """
    command = [
        sys.executable,
        __file__,
        "--folder",
        str(folder),
        "--one",
        kind,
        "--workers",
        str(workers),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{kind} with {workers} workers: {done.stderr.strip().splitlines()[-1]}")

    return json.loads(done.stdout.splitlines()[-1])


def measure_rounds(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every kind with every number of workers, in rounds; return the medians of each kind
    and number.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        make_corpus(folder, args.hours, args.kinds)
        rounds_of: dict[tuple[int, str], list[dict[str, float]]] = {}

        for _ in range(args.repeats):
            for workers in args.workers:
                for kind in args.kinds:
                    rounds_of.setdefault((workers, kind), []).append(
                        in_own_process(kind, folder, workers)
                    )

    results = []
    for (workers, kind), rounds in rounds_of.items():
        figures = {
            name: round(median(figures_of_round[name] for figures_of_round in rounds), 3)
            for name in rounds[0]
        }
        results.append({"workers": workers, "kind": kind, **figures})

    return results


def compare(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute the ratios of the report, by number of workers where both kinds were measured."""
    figures_of = {(result["workers"], result["kind"]): result for result in results}
    numbers = dict.fromkeys(workers for workers, _ in figures_of)

    def ratios(kind: str, other: str, figure: str = "speed") -> dict[int, float]:
        both = [
            workers
            for workers in numbers
            if {(workers, kind), (workers, other)} <= figures_of.keys()
        ]
        return {
            w: round(figures_of[w, kind][figure] / figures_of[w, other][figure], 3) for w in both
        }

    to_peers = [ratios("shard", peer)[0] for peer in PEERS if 0 in ratios("shard", peer)]
    return {
        "ratio_to_best_peer": min(to_peers, default=None),
        "raw_to_shard": ratios("raw", "shard"),
        "raw_to_shard_cold": ratios("raw_cold", "shard_cold"),
        "noise_to_shard": ratios("shard_noise", "shard"),
        "noise_to_raw": ratios("raw_noise", "raw"),
        "flac_to_decoding": ratios("flac", "decoding"),
        "flac_to_decoding_by_cpu": ratios("flac", "decoding", "cpu_speed"),
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--hours", type=float, default=4.6, help="hours of audio (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="epochs of each kind (default: %(default)s)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=FOLDERS,
        default=installed(),
        help="kinds to measure (default: all)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keep the corpus here for later runs (default: a temporary folder)",
    )
    parser.add_argument(
        "--workers",
        nargs="+",
        type=int,
        default=[0, 2],
        help="numbers of data workers (default: 0 2)",
    )
    parser.add_argument("--one", choices=FOLDERS, help=argparse.SUPPRESS)

    return parser.parse_args()


def main() -> None:
    """Measure all kinds and print a table; with --one (internal), measure one epoch in this
    process.
    """
    args = parse_arguments()
    if args.one:
        print(json.dumps(measure(args.one, args.folder, args.workers[0])))
        return

    results = measure_rounds(args)
    print(
        f"{'workers':>7} "
        f"{'':<17}{'speed':>8}{'by CPU':>8}{'first s':>9}{'padding %':>11}{'memory MB':>11}"
    )
    for figures in results:
        print(
            f"{figures['workers']:7} "
            f"{figures['kind']:<17}{figures['speed']:8.0f}{figures['cpu_speed']:8.0f}"
            f"{figures['first_batch_s']:9.2f}{figures['padding']:11.2f}{figures['memory_mb']:11.0f}"
        )

    ratios = compare(results)
    report = {
        **ratios,
        "hours": args.hours,
        "repeats": args.repeats,
        "results": results,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        **provenance("torch", *(kind for kind in args.kinds if kind in PEERS)),
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio}")

    print(f"commit {report['commit']}, load {report['load']}, {report['versions']}")
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
