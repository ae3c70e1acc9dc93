#!/usr/bin/env python3
"""Index tars without indexes, and audio files, on an HTTP server with latency: seconds, requests and
bytes.

Lists of many small tars, which are links to one tar of a few utterances of 2 s; of one large tar of
recordings; and raw lists of many audio files of one format, which are links to one file. A server
in its own process serves them. Each list is indexed as training and `index_data.py` do it, with an
empty cache. `against.py` compares with an earlier commit.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import soundfile
from provenance import benchmark_parser, cpu_seconds, settings
from slow_server import serve

from wenet_uio.base.cli import run
from wenet_uio.base.files import read_lines
from wenet_uio.dataset.corpus.open_list import build_index
from wenet_uio.dataset.formats.data_list import DataType, RawLine
from wenet_uio.dataset.storage.settings import parse_bytes

RATE = 16000
WAV_HEADER = 44
"""Bytes."""
FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
}
"""{suffix of audio files: names of format and subtype in libsndfile}."""


def write_tar(path: Path, samples: int, sample_bytes: int) -> None:
    """Write a tar of texts and of silent 16-bit wav, whose samples are holes of the file.

    Args:
        samples: number of utterances.
        sample_bytes: bytes of the audio of each utterance.
    """
    with path.open("wb") as file:
        for number in range(samples):
            text = b"a text of some words"
            file.write(header(f"{number:08d}.txt", len(text)) + text.ljust(512, b"\0"))
            file.write(header(f"{number:08d}.wav", sample_bytes) + wav_header(sample_bytes))
            end = file.tell() + sample_bytes - WAV_HEADER
            file.seek(-(-end // 512) * 512)

        end = file.tell() + 1024
        file.truncate(-(-end // tarfile.RECORDSIZE) * tarfile.RECORDSIZE)


def header(name: str, size: int) -> bytes:
    """Return the header of a member."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT)


def wav_header(size: int) -> bytes:
    """Return the first bytes of a 16-bit wav of `size` bytes."""
    buffer = io.BytesIO()
    samples = np.zeros((size - WAV_HEADER) // 2, np.int16)
    soundfile.write(buffer, samples, RATE, format="WAV", subtype="PCM_16")
    return buffer.getvalue()[:WAV_HEADER]


def write_files(folder: Path, suffix: str, count: int, seconds: float) -> list[str]:
    """Write a file of noise in a format, and links to it; returns the names."""
    names = [f"{number}.{suffix}" for number in range(count)]
    noise = np.random.default_rng(0).normal(0, 0.1, int(seconds * RATE))
    file_format, subtype = FORMATS[suffix]
    soundfile.write(folder / names[0], noise, RATE, format=file_format, subtype=subtype)
    for name in names[1:]:
        (folder / name).hardlink_to(folder / names[0])
    return names


def measure(data_list: Path, data_type: DataType, log: Path) -> dict[str, float]:
    """Index a list; return wall and CPU seconds, and requests and MB that the server sent."""
    log.write_text("")
    began, cpu_began = time.perf_counter(), cpu_seconds()
    bad = build_index(str(data_list), data_type).bad
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_began
    if bad:
        raise ValueError(f"{bad[0]}: the benchmark expects no bad sample")

    requests = list(read_lines(log))
    sent = sum(request["bytes"] for request in requests)
    return {
        "seconds": seconds,
        "cpu_s": cpu,
        "requests": float(len(requests)),
        "mb": sent / 1e6,
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--tars", type=int, default=1000, help="small tars; 0: no tars (default: %(default)s)"
    )
    parser.add_argument(
        "--utterances",
        type=int,
        default=4,
        help="utterances of a small tar (default: %(default)s)",
    )
    parser.add_argument(
        "--large", default="1G", help="bytes of the large tar (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        nargs="*",
        default=[10.0, 100.0, 1800.0],
        help="seconds of a recording of the large tar, one tar each (default: 10 100 1800)",
    )
    parser.add_argument(
        "--files", type=int, default=1000, help="audio files of a format (default: %(default)s)"
    )
    parser.add_argument(
        "--formats",
        nargs="*",
        choices=FORMATS,
        default=["wav", "flac"],
        help="formats of audio files, a list each (default: wav flac)",
    )
    parser.add_argument(
        "--file_seconds",
        type=float,
        default=15.0,
        help="seconds of an audio file (default: %(default)s)",
    )
    parser.add_argument(
        "--latency",
        type=float,
        default=0.05,
        help="seconds from a request to its answer (default: %(default)s)",
    )
    parser.add_argument(
        "--bandwidth",
        default="100M",
        help="bytes per second of a connection (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="times that each list is indexed (default: 3)"
    )

    return parser.parse_args()


@contextmanager
def served(folder: Path, args: argparse.Namespace, log: Path) -> Iterator[str]:
    """Serve a folder by a process that lasts as long as the context; gives the address."""
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    arguments = (folder, port, args.latency, parse_bytes(args.bandwidth), log)
    server = context.Process(target=serve, args=arguments, daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{port.get()}"
    finally:
        server.terminate()
        server.join()


def write_all(folder: Path, args: argparse.Namespace) -> dict[str, list[str]]:
    """Write the files of all lists; returns their names, tars as a line of a list has them."""
    lists = write_tars(folder, args) if args.tars else {}
    for suffix in args.formats:
        lists[f"files_{suffix}"] = write_files(folder, suffix, args.files, args.file_seconds)
    return lists


def write_list(path: Path, url: str, names: list[str]) -> DataType:
    """Write the list of files on a server; returns its type."""
    if names[0].endswith(".tar"):
        path.write_text("".join(f"{url}/{name}\n" for name in names))
        return "shard"

    lines = (RawLine(name, f"{url}/{name}", "a text of some words").to_json() for name in names)
    path.write_text("".join(f"{line}\n" for line in lines))
    return "raw"


def write_tars(folder: Path, args: argparse.Namespace) -> dict[str, list[str]]:
    """Write the tars of both kinds; returns their names as a line of a list has them."""
    first = folder / "small_0.tar"
    write_tar(first, args.utterances, WAV_HEADER + 2 * 2 * RATE)
    for number in range(1, args.tars):
        (folder / f"small_{number}.tar").hardlink_to(first)

    lists = {"small": [f"small_{{0..{args.tars - 1}}}.tar"]}
    for seconds in args.seconds:
        sample_bytes = WAV_HEADER + int(2 * RATE * seconds)
        count = max(1, parse_bytes(args.large) // sample_bytes)
        lists[f"large_{seconds:g}"] = [f"large_{seconds:g}.tar"]
        write_tar(folder / f"large_{seconds:g}.tar", count, sample_bytes)

    return lists


def main() -> None:
    """Index lists of many small tars, of one large tar and of many audio files."""
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WENET_UIO_CACHE"] = str(folder / "cache")
        (folder / "store").mkdir()
        lists = write_all(folder / "store", args)
        results: dict[str, list[dict[str, float]]] = {kind: [] for kind in lists}

        with served(folder / "store", args, folder / "requests") as url:
            for repeat in range(args.repeats):
                for kind, names in lists.items():
                    shutil.rmtree(folder / "cache", ignore_errors=True)
                    data_list = folder / f"{kind}_{repeat}.list"
                    data_type = write_list(data_list, url, names)
                    results[kind].append(measure(data_list, data_type, folder / "requests"))

    figures = {
        kind: {name: round(median(result[name] for result in rounds), 3) for name in rounds[0]}
        for kind, rounds in results.items()
    }
    print(
        f"{args.tars} small tars; tars of {args.large}B; {args.files} files of "
        f"{args.file_seconds:g} s; {1000 * args.latency:.0f} ms a request"
    )
    print(f"{'':<12}{'seconds':>10}{'CPU, s':>10}{'requests':>10}{'MB':>10}")
    for kind, row in figures.items():
        print(
            f"{kind:<12}{row['seconds']:10.2f}{row['cpu_s']:10.2f}{row['requests']:10.0f}"
            f"{row['mb']:10.2f}"
        )

    if args.json:
        rows = [{"list": kind, **row} for kind, row in figures.items()]
        print(json.dumps({"results": rows, **settings(args)}))


if __name__ == "__main__":
    run(main)
