#!/usr/bin/env python3
"""Packing beside plain tar, in one run: the code of tools/make_shard_list.py, and `tar` over the same audio files.

    keep     wav files packed as they are
    flac     wav files encoded to flac
    decode   flac files decoded to wav

Tar packs the files of each shard as they are, a process a shard, without texts, index, checks and digests. The clock
stops when what was written is on the disk. Rounds of all alternate; a figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from corpus import MEAN, write_audio
from provenance import cpu_seconds, provenance, settings

from wenet_uio.cli import run
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.executor import Executor, chunks
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import ShardOptions

KINDS = {"keep": ("wav", "keep"), "flac": ("wav", "flac"), "decode": ("flac", "wav")}
"""Format of the files, and how they are stored."""


@dataclass(frozen=True)
class Task:
    """Files to pack, and how many go into a shard, by how many processes."""

    lines: list[RawLine]
    per_shard: int
    processes: int

    def pack(self, out: Path, audio_format: str) -> None:
        storing, executor = Storing(audio_format), Executor(self.processes)
        data_list = str(out / "shard.list")
        options = ShardOptions(per_shard=self.per_shard, storing=storing)
        bad = make_shard_list(self.lines, out, data_list, options, executor)
        if bad:
            raise ValueError(f"{bad[0]}: not to be expected here")

    def tar(self, out: Path) -> None:
        def shard(numbered: tuple[int, list[RawLine]]) -> None:
            number, lines = numbered
            path, folder = out / f"{number:09d}.tar", os.path.dirname(lines[0].wav)
            names = "".join(f"{os.path.basename(line.wav)}\n" for line in lines)
            subprocess.run(["tar", "-C", folder, "-cf", path, "-T", "-"], input=names, text=True, check=True)
            with open(path, "rb") as file:
                os.fsync(file.fileno())

        with ThreadPoolExecutor(self.processes) as pool:
            list(pool.map(shard, enumerate(chunks(self.lines, self.per_shard))))


def clock(write: Callable[[Path], None], folder: Path) -> dict[str, float]:
    """Seconds of the clock and of all processes, to write into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began, cpu = time.perf_counter(), cpu_seconds()
    write(folder)
    return {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=4.6, help="of audio (default: %(default)s)")
    parser.add_argument("--num_utts_per_shard", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="default: all")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2], help="default: 1 2")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    args = parser.parse_args()
    sources = sorted({KINDS[kind][0] for kind in args.kinds}, reverse=True)
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, per_shard = Path(name), args.num_utts_per_shard
        utterances = max(1, round(3600 * args.hours / MEAN))
        lines = {source: write_audio(folder / source, utterances, source) for source in sources}
        megabytes = {source: sum(os.path.getsize(line.wav) for line in each) / 1e6 for source, each in lines.items()}
        os.sync()
        for _ in range(args.repeats):
            for processes in args.processes:
                tasks = {source: Task(each, per_shard, processes) for source, each in lines.items()}
                for source, task in tasks.items():
                    found.setdefault((processes, f"tar of {source}"), []).append(clock(task.tar, folder / "out"))
                for kind in args.kinds:
                    source, stored = KINDS[kind]
                    write = partial(tasks[source].pack, audio_format=stored)
                    found.setdefault((processes, kind), []).append(clock(write, folder / "out"))
    medians = {
        place: {name: median(each[name] for each in rounds) for name in rounds[0]} for place, rounds in found.items()
    }
    print(f"{'processes':>9} {'':<12}{'utterances/s':>13}{'MB/s':>8}{'CPU s':>8}{'to tar':>8}{'to tar, CPU':>13}")
    results = []
    for (processes, kind), figures in medians.items():
        source = KINDS[kind][0] if kind in KINDS else kind.split()[-1]
        tar = medians[processes, f"tar of {source}"]
        result = {
            "processes": processes,
            "kind": kind,
            "utterances_per_second": round(utterances / figures["seconds"], 1),
            "megabytes_per_second": round(megabytes[source] / figures["seconds"], 1),
            "cpu_seconds": round(figures["cpu_seconds"], 2),
            "ratio_to_tar": round(tar["seconds"] / figures["seconds"], 3),
            "cpu_ratio_to_tar": round(tar["cpu_seconds"] / figures["cpu_seconds"], 3),
        }
        results.append(result)
        print("{:9} {:<12}{:13.0f}{:8.0f}{:8.2f}{:8.2f}{:13.2f}".format(*result.values()))
    ratios = {f"{result['kind']} {result['processes']}": result["ratio_to_tar"] for result in results}
    report = {
        "ratio_to_tar": {name: ratio for name, ratio in ratios.items() if not name.startswith("tar")},
        "utterances": utterances,
        **settings(args),
        "results": results,
        **provenance("soundfile"),
    }
    print(f"{utterances} utterances; commit {report['commit']}, load {report['load']}")
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
