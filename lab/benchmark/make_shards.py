#!/usr/bin/env python3
"""Packing compared in one run with plain tar: the code of tools/make_shard_list.py, and `tar` on
the same audio files.

    keep     wav files packed as they are
    flac     wav files encoded to flac
    decode   flac files decoded to wav

Tar packs the files of each shard as they are, in one process for each shard, without texts, index,
checks and digests. The clock stops when all data is synced to disk. Rounds of all kinds alternate;
a figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from corpus import MEAN, write_audio
from provenance import benchmark_parser, cpu_seconds, provenance, settings

from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor, chunks
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import ShardOptions

Stored = Literal["keep", "wav", "flac"]
KINDS: dict[str, tuple[str, Stored]] = {
    "keep": ("wav", "keep"),
    "flac": ("wav", "flac"),
    "decode": ("flac", "wav"),
}
"""{kind: (format of the files, format in the shards)}"""


@dataclass(frozen=True)
class Task:
    """Files to pack, utterances of a shard, and number of processes."""

    lines: list[RawLine]
    per_shard: int
    processes: int

    def pack(self, out: Path, audio_format: Stored) -> None:
        """Pack by our code.

        Raises:
            ValueError: a file was refused.
        """
        storing, executor = Storing(audio_format), Executor(self.processes)
        data_list = str(out / "shard.list")
        options = ShardOptions(per_shard=self.per_shard, storing=storing)
        bad = make_shard_list(self.lines, out, data_list, options, executor)
        if bad:
            raise ValueError(f"{bad[0]}: the benchmark expects no bad audio")

    def tar(self, out: Path) -> None:
        """Pack by `tar`."""

        def shard(numbered: tuple[int, list[RawLine]]) -> None:
            number, lines = numbered
            path, folder = out / f"{number:09d}.tar", Path(lines[0].wav).parent
            names = "".join(f"{Path(line.wav).name}\n" for line in lines)
            subprocess.run(
                ["tar", "-C", folder, "-cf", path, "-T", "-"], input=names, text=True, check=True
            )
            with open(path, "rb") as file:
                os.fsync(file.fileno())

        with ThreadPoolExecutor(self.processes) as pool:
            list(pool.map(shard, enumerate(chunks(self.lines, self.per_shard))))


def clock(write: Callable[[Path], None], folder: Path) -> dict[str, float]:
    """Measure writing into an empty folder: seconds of the clock, and CPU seconds of all
    processes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began, cpu = time.perf_counter(), cpu_seconds()
    write(folder)

    return {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - cpu}


class Measured(NamedTuple):
    """Medians of all kinds."""

    utterances: int
    megabytes: dict[str, float]
    """{format: MB of the files}"""
    medians: dict[tuple[int, str], dict[str, float]]
    """{(processes, kind): seconds and CPU seconds}"""


def sources_of(kinds: Iterable[str]) -> list[str]:
    """Return the formats of the files that these kinds pack."""
    return sorted({KINDS[kind][0] for kind in kinds}, reverse=True)


def total_bytes(lines: Iterable[RawLine]) -> int:
    """Return the size of all audio files together."""
    return sum(Path(line.wav).stat().st_size for line in lines)


def measure(args: argparse.Namespace) -> Measured:
    """Pack the same files by every kind, in rounds."""
    rounds_of: dict[tuple[int, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, per_shard = Path(name), args.num_utts_per_shard
        utterances = max(1, round(3600 * args.hours / MEAN))
        lines = {
            source: write_audio(folder / source, utterances, source)
            for source in sources_of(args.kinds)
        }
        megabytes = {
            source: total_bytes(source_lines) / 1e6 for source, source_lines in lines.items()
        }
        os.sync()

        for _ in range(args.repeats):
            for processes in args.processes:
                tasks = {
                    source: Task(source_lines, per_shard, processes)
                    for source, source_lines in lines.items()
                }
                for source, task in tasks.items():
                    rounds_of.setdefault((processes, f"tar of {source}"), []).append(
                        clock(task.tar, folder / "out")
                    )
                for kind in args.kinds:
                    source, stored = KINDS[kind]
                    write = partial(tasks[source].pack, audio_format=stored)
                    rounds_of.setdefault((processes, kind), []).append(clock(write, folder / "out"))

    medians = {
        place: {name: median(source_lines[name] for source_lines in rounds) for name in rounds[0]}
        for place, rounds in rounds_of.items()
    }
    return Measured(utterances, megabytes, medians)


def compare(measured: Measured) -> list[dict[str, Any]]:
    """Compute speeds and their ratios to tar: an entry for each number of processes and kind."""
    results = []
    for (processes, kind), figures in measured.medians.items():
        source = KINDS[kind][0] if kind in KINDS else kind.split()[-1]
        tar = measured.medians[processes, f"tar of {source}"]
        result = {
            "processes": processes,
            "kind": kind,
            "utterances_per_second": round(measured.utterances / figures["seconds"], 1),
            "megabytes_per_second": round(measured.megabytes[source] / figures["seconds"], 1),
            "cpu_seconds": round(figures["cpu_seconds"], 2),
            "ratio_to_tar": round(tar["seconds"] / figures["seconds"], 3),
            "cpu_ratio_to_tar": round(tar["cpu_seconds"] / figures["cpu_seconds"], 3),
        }
        results.append(result)

    return results


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--hours", type=float, default=4.6, help="hours of audio (default: %(default)s)"
    )
    parser.add_argument(
        "--num_utts_per_shard",
        type=int,
        default=500,
        help="utterances of a shard (default: %(default)s)",
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=list(KINDS),
        help="kinds to measure (default: all)",
    )
    parser.add_argument(
        "--processes",
        nargs="+",
        type=int,
        default=[1, 2],
        help="numbers of processes (default: 1 2)",
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: %(default)s)")

    return parser.parse_args()


def main() -> None:
    """Measure packing and tar, and print a table."""
    args = parse_arguments()
    measured = measure(args)
    results = compare(measured)
    print(
        f"{'processes':>9} "
        f"{'':<12}{'utterances/s':>13}{'MB/s':>8}{'CPU s':>8}{'to tar':>8}{'to tar, CPU':>13}"
    )
    for result in results:
        print("{:9} {:<12}{:13.0f}{:8.0f}{:8.2f}{:8.2f}{:13.2f}".format(*result.values()))

    ratios = {
        f"{result['kind']} {result['processes']}": result["ratio_to_tar"] for result in results
    }
    report = {
        "ratio_to_tar": {
            name: ratio for name, ratio in ratios.items() if not name.startswith("tar")
        },
        "utterances": measured.utterances,
        **settings(args),
        "results": results,
        **provenance("soundfile"),
    }
    print(f"{measured.utterances} utterances; commit {report['commit']}, load {report['load']}")
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
