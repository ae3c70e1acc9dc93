#!/usr/bin/env python3
"""The server with real clients: delay of results, clients at once, memory over hours, clients that
do harm.

The command `wenet_uio.bin.serve` runs in its own process with a thread for torch; the clients run
in this process. They speak parts of the recordings in --audio, joined with pauses. Without --model
the server has a conformer of 12 layers x 256 and a decoder with random weights, whose bias lets 15
% of the frames have a unit.

delay: clients at the pace of speech. The delay of a result is the time from sending the packet (0.1
s) with the last sample of a chunk (0.64 s) to the result of this chunk. A number of clients keeps
up if its p95 is below a chunk. throughput: clients that send as fast as it is taken; audio seconds
per CPU second of the server. Both compare all final texts with those of a stream alone in this
process. memory: streams of --minutes each, as fast as it is taken, speech and silence in turn;
resident memory of the server. faults: clients that vanish at random places, malformed frames and
floods, while another client speaks. mixed: clients at the pace of speech, alone and beside a recording
of --hours and short ones.

    python lab/benchmark/serve.py --json
    python lab/benchmark/serve.py --model exp/conformer --parts delay --clients 1 8 16 32 64
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

import numpy as np
import torch
from provenance import benchmark_parser, provenance, settings
from serve_clients import CHUNK_SECONDS, RATE, Heard, Talk, delays_of, speak_on, speak_together
from serve_faults import flood_all, vanish_often
from serve_mixed import encode_long, encode_short, measure_mixed
from serve_model import MODE, join_recordings, talks_of, write_model

from wenet_uio.base.cli import run

PARTS = ("delay", "throughput", "memory", "faults", "mixed")
STREAMS = 3
"""Streams of the part memory."""
TALKS = 8
"""Different talks of the clients."""
MARKS = (1, 2, 5, 10, 20, 30, 60)
"""Minutes of audio a stream at which the memory is shown."""


class ServerProcess:
    """A server on a free port of the loopback address."""

    def __init__(self, model: str, folder: Path, clients: int) -> None:
        self._log = folder / "log"
        command = [
            sys.executable,
            "-m",
            "wenet_uio.bin.serve",
            "--model",
            model,
            "--port",
            "0",
            "--device",
            "cpu",
        ]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--mode", MODE, "--max_clients", str(clients)],
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

        self.url = self._wait()

    def _wait(self) -> str:
        """Wait until the server listens.

        Raises:
            ValueError: it does not.
        """
        for _ in range(1200):
            if line := re.search(r"^serving .* on (http\S+)$", self.text, re.MULTILINE):
                return line[1]
            if self._process.poll() is not None:
                break
            time.sleep(0.1)

        self._process.kill()
        raise ValueError(f"the server did not start: {self.text[-2000:]}")

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def text(self) -> str:
        """What the server has logged."""
        return self._log.read_text()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process."""
        return self.metrics()["process_cpu_seconds_total"]

    @property
    def alive(self) -> bool:
        """Whether /health answers."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=20) as answer:
            return json.load(answer)["status"] == "ok"

    def metrics(self) -> dict[str, float]:
        """Return the metrics without labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.partition(" ") for line in lines if line[0] != "#")
        }

    def held(self) -> dict[str, float]:
        """Return what clients may leave behind."""
        metrics = self.metrics()
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return {
            "connections": metrics["wenet_uio_connections"] - 1,  # the one that asks
            "clients": metrics["wenet_uio_clients"],
            "streams": metrics["wenet_uio_open_streams"],
            "uploads": metrics["wenet_uio_uploads"],
            "files": metrics["process_open_fds"],
            "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
            "memory_mb": round(metrics["process_resident_memory_bytes"] / 1e6, 1),
        }

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def measure_clients(
    server: ServerProcess, talks: Sequence[Talk], clients: int, *, real_time: bool
) -> dict[str, Any]:
    """Let clients speak at once; return delays, CPU time, and the number of texts that differ from
    a stream alone.
    """
    before, began, cpu = server.metrics(), time.monotonic(), server.cpu_seconds
    answers = speak_together(server.url, talks, clients, real_time=real_time)
    cpu, taken, after = server.cpu_seconds - cpu, time.monotonic() - began, server.metrics()
    talks_of_clients = [talks[number % len(talks)] for number in range(clients)]
    audio = sum(len(talk.samples) for talk in talks_of_clients) / RATE
    size, steps = (
        after[f"wenet_uio_step_streams_{name}"] - before[f"wenet_uio_step_streams_{name}"]
        for name in ("sum", "count")
    )
    figures = {
        "clients": clients,
        "audio_per_cpu_second": round(audio / cpu, 1),
        "cpu_percent": round(100 * cpu / taken),
        "streams_of_a_step": round(size / steps, 1),
        "utterances": sum(len(talk.finals) for talk in talks_of_clients),
        "differ": sum(
            talk.finals != answer.finals
            for talk, answer in zip(talks_of_clients, answers, strict=True)
        ),
    }

    return figures | (delay_figures(talks_of_clients, answers) if real_time else {})


def delay_figures(talks: Sequence[Talk], answers: Sequence[Heard]) -> dict[str, Any]:
    """Percentiles of the delays of all clients, and whether the server keeps up."""
    delays_of_clients = [
        delays_of(talk, of_client) for talk, of_client in zip(talks, answers, strict=True)
    ]
    figures: dict[str, Any] = {}
    for place, name in enumerate(("partial", "final")):
        delays = [delay for of_client in delays_of_clients for delay in of_client[place]]
        for part in (50, 95):
            figures[f"{name}_p{part}_s"] = (
                round(float(np.percentile(delays, part)), 3) if delays else None
            )

    figures["partials"] = sum(len(of_client[0]) for of_client in delays_of_clients)
    figures["keeps_up"] = (figures["partial_p95_s"] or 0) < CHUNK_SECONDS
    return figures


def measure_memory(server: ServerProcess, speech: np.ndarray, minutes: float) -> dict[str, Any]:
    """Resident memory of the server, in MB, by minutes of audio a stream."""
    silence = np.random.default_rng(2).normal(0, 3, 8 * RATE).astype(np.int16)
    part = np.concatenate([speech[: 22 * RATE], silence])
    seen: list[tuple[float, float]] = []

    def look() -> None:
        found = server.metrics()
        seconds = found['wenet_uio_audio_seconds_total{kind="stream"}']
        seen.append((seconds / 60 / STREAMS, found["process_resident_memory_bytes"] / 1e6))

    speak_on(server.url, part, STREAMS, minutes, look)
    look()
    at = {
        mark: [mb for minute, mb in seen if 0.9 * mark <= minute <= 1.2 * mark]
        for mark in (*MARKS, minutes)
    }
    by_minutes = {f"{mark:g}": round(median(found), 1) for mark, found in at.items() if found}
    values = list(by_minutes.values())

    return {
        "by_minutes_mb": by_minutes,
        "growth_percent": round(100 * (values[-1] / values[0] - 1), 1),
    }


def measure_faults(
    server: ServerProcess, talk: Talk, vanishing: int, seconds: float
) -> dict[str, Any]:
    """Return what vanished clients leave behind, and whether floods change the text of a client."""
    vanish_often(server.url, vanishing // 10)
    before = settled(server)
    places = vanish_often(server.url, vanishing)
    after = settled(server)

    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood_all, server.url, seconds, lambda: server.alive)
        (answer,) = speak_together(server.url, [talk], 1, real_time=True)
        ended = flooding.result()

    return {
        "vanished": vanishing,
        "places": places,
        "before": before,
        "after": after,
        "after_floods": settled(server),
        "floods_ended_by_the_server": ended,
        "text_is_unchanged": answer.finals == talk.finals,
        "errors_logged": server.text.count("Traceback"),
    }


def settled(server: ServerProcess) -> dict[str, float]:
    """Return what is left when all clients are gone; waits up to a minute for it."""
    for _ in range(600):
        held = server.held()
        # A connection that is being closed has a file, and need not be a client.
        if not any(held[name] for name in ("connections", "clients", "streams", "uploads")):
            break
        time.sleep(0.1)

    time.sleep(3)  # the server returns memory after a second without work
    return server.held()


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--model", help="folder of a run that can stream (default: random weights)")
    parser.add_argument("--audio", help="folder of recordings (default: $WENET_UIO_CORPORA)")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (default: all)"
    )
    parser.add_argument(
        "--clients",
        type=int,
        nargs="+",
        default=[1, 8, 32, 64],
        help="numbers of clients (default: 1 8 32 64)",
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="length of a talk (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="audio of a stream in the part memory (default: %(default)s)",
    )
    parser.add_argument(
        "--hours",
        type=float,
        default=4,
        help="length of the long recording in the part mixed (default: %(default)s)",
    )
    parser.add_argument(
        "--vanish", type=int, default=1000, help="clients that vanish (default: %(default)s)"
    )
    parser.add_argument(
        "--flood_seconds",
        type=float,
        default=8,
        help="longest time of a flood (default: %(default)s)",
    )
    parser.add_argument(
        "--blocks", type=int, default=12, help="layers of the random encoder (default: %(default)s)"
    )
    parser.add_argument(
        "--width", type=int, default=256, help="width of the random model (default: %(default)s)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="sizes of a few seconds, which measure nothing"
    )
    args = parser.parse_args()
    if args.quick:
        args.clients, args.seconds, args.minutes, args.vanish = [1, 4], 2.0, 0.5, 10
        args.flood_seconds, args.blocks, args.width, args.hours = 0.3, 1, 16, 0.2

    args.audio = args.audio or os.environ.get("WENET_UIO_CORPORA")
    if not args.audio:
        parser.error("--audio is needed if $WENET_UIO_CORPORA is not set")

    return args


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the server and measure the parts."""
    speech = join_recordings(Path(args.audio), max(30, 4 * args.seconds))
    model = args.model or str(write_model(folder / "model", speech, args.blocks, args.width))
    talks = talks_of(model, speech, args.seconds, min(TALKS, max(args.clients)))
    report: dict[str, Any] = {}

    with ServerProcess(model, folder, max(64, *args.clients)) as server:
        if "memory" in args.parts:  # first, because the other parts leave their own peak
            report["memory"] = measure_memory(server, speech, args.minutes)
            print(json.dumps(report["memory"], indent=1), flush=True)
        for part, real_time in (("throughput", False), ("delay", True)):
            if part in args.parts:
                report[part] = []
                for clients in args.clients:
                    report[part].append(
                        measure_clients(server, talks, clients, real_time=real_time)
                    )
                    print(f"{part}: {json.dumps(report[part][-1])}", flush=True)

        if "mixed" in args.parts:
            uploads = encode_long(speech, args.hours), encode_short(speech)
            report["mixed"] = measure_mixed(server, talks, args.clients, uploads)

        if "faults" in args.parts:
            report["faults"] = measure_faults(server, talks[0], args.vanish, args.flood_seconds)
            print(json.dumps(report["faults"], indent=1), flush=True)

    return report


def main() -> None:
    """Measure and print the report."""
    args = parse_arguments()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        report = measure(args, Path(folder))

    if "delay" in report:
        kept = [row["clients"] for row in report["delay"] if row["keeps_up"]]
        report["most_clients_in_real_time"] = max(kept, default=0)
        print(f"clients in real time: {report['most_clients_in_real_time']}")

    if args.json:
        print(json.dumps({**report, **settings(args), **provenance("torch", "aiohttp")}))


if __name__ == "__main__":
    run(main)
