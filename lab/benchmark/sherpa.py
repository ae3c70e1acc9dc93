#!/usr/bin/env python3
"""Our streaming recogniser beside sherpa-onnx: the same weights, one thread, 1 to many streams.

A conformer with random weights is written, and exported by `export_onnx`. Ours is `live` of the
checkpoint in torch and of the export for streams, float and int8, greedy search of CTC; sherpa-onnx
runs the files for sherpa-onnx, float and int8. All streams of an engine are advanced together.
"Speed" gives all audio at once. "Delay" is that of a partial result for speech at its own pace:
arrivals are simulated, and the time of each step is its CPU time, so that other work on the machine
does not count. "differ" counts the streams whose text is not that of the checkpoint in torch. Rows
of 0 streams are whole recordings of the same length, a batch of --files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import soundfile
import torch
from provenance import benchmark_parser, provenance, settings
from serve_model import RATE, join_recordings, write_model

from wenet_uio.addons.listen.live import Failed, advance
from wenet_uio.addons.listen.load import load_model
from wenet_uio.base.cli import run
from wenet_uio.dataset.formats.data_list import RawLine

CHUNK, LEFT_CHUNKS = 16, 4
"""Encoder frames of a chunk, and chunks before it."""
CHUNK_SECONDS = 0.64
SILENCE = np.zeros(int(CHUNK_SECONDS * RATE), np.float32)


class Engine(Protocol):
    """Recognises some streams."""

    def push(self, stream: int, samples: np.ndarray) -> None:
        """Give samples to a stream."""
        ...

    def step(self) -> list[int]:
        """Decode the next chunk of all streams that are ready, together; returns them."""
        ...

    def texts(self) -> list[str]:
        """Return the text of each stream so far."""
        ...


class Ours:
    """The streams of `live`."""

    def __init__(self, recogniser: Any, count: int) -> None:
        options = {"chunk_size": CHUNK, "left_chunks": LEFT_CHUNKS, "mode": "ctc_greedy_search"}
        self._streams = [
            recogniser.live(sample_rate=RATE, endpoints={}, second_pass=False, **options)
            for _ in range(count)
        ]
        self._texts = [""] * count

    def push(self, stream: int, samples: np.ndarray) -> None:
        """Give samples to a stream."""
        self._streams[stream].push(samples)

    def step(self) -> list[int]:
        """Decode the next chunk of all streams that are ready, together; returns them."""
        ready = [number for number, stream in enumerate(self._streams) if stream.ready]
        advance([self._streams[number] for number in ready])
        for number in ready:
            for event in self._streams[number].take():
                if isinstance(event, Failed):
                    raise event.error
                self._texts[number] = event.texts[0]
        return ready

    def texts(self) -> list[str]:
        """Return the text of each stream so far."""
        return self._texts


class Sherpa:
    """The streams of an OnlineRecognizer."""

    def __init__(self, recogniser: Any, count: int) -> None:
        self._recogniser = recogniser
        self._streams = [recogniser.create_stream() for _ in range(count)]

    def push(self, stream: int, samples: np.ndarray) -> None:
        """Give samples to a stream."""
        self._streams[stream].accept_waveform(RATE, samples)

    def step(self) -> list[int]:
        """Decode the next chunk of all streams that are ready, together; returns them."""
        ready = [
            number
            for number, stream in enumerate(self._streams)
            if self._recogniser.is_ready(stream)
        ]
        if ready:
            self._recogniser.decode_streams([self._streams[number] for number in ready])
        return ready

    def texts(self) -> list[str]:
        """Return the text of each stream so far."""
        return [self._recogniser.get_result(stream) for stream in self._streams]


def speed(engine: Engine, talks: Sequence[np.ndarray]) -> float:
    """Give all audio at once; return audio seconds per CPU second."""
    began = time.process_time()
    for number, talk in enumerate(talks):
        engine.push(number, np.concatenate([talk, SILENCE]))
    while engine.step():
        pass

    return sum(map(len, talks)) / RATE / (time.process_time() - began)


def delays(engine: Engine, talks: Sequence[np.ndarray]) -> list[float]:
    """Speak at the pace of speech; return the seconds from each arrival of a chunk to the result of
    the step that follows it.
    """
    size = len(SILENCE)
    starts = np.random.default_rng(0).uniform(0, CHUNK_SECONDS, len(talks))
    arrivals = sorted(
        (starts[number] + (place + size) / RATE, number, place)
        for number, talk in enumerate(talks)
        for place in range(0, len(talk) - size + 1, size)
    )
    now, newest, delays = 0.0, [0.0] * len(talks), []
    while arrivals:
        now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now:
            newest_time, number, place = arrivals.pop(0)
            newest[number] = newest_time
            engine.push(number, talks[number][place : place + size])

        began = time.process_time()
        decoded = engine.step()
        now += time.process_time() - began
        delays += [now - newest[number] for number in decoded]

    return delays


def export(folder: Path, talk: np.ndarray) -> Path:
    """Export the model of a run for sherpa-onnx and for streams; returns the folder of the
    files.
    """
    wav = folder / "check.wav"
    soundfile.write(wav, talk[: 6 * RATE], RATE, subtype="PCM_16")
    (folder / "check.list").write_text(RawLine("check", str(wav), "").to_json() + "\n")
    command = [sys.executable, "-m", "wenet_uio.bin.export_onnx", "--runtimes", "sherpa", "streams"]
    command += ["--config", folder / "train.yaml", "--checkpoint", folder / "final.pt"]
    command += ["--output_dir", folder / "onnx", "--check_data", folder / "check.list"]
    command += ["--chunk_size", CHUNK, "--num_decoding_left_chunks", LEFT_CHUNKS]
    # Random weights differ by more than trained ones.
    command += ["--num_check", 1, "--int8_tolerance", 100]
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)
    return folder / "onnx"


def engines_of(folder: Path, onnx: Path) -> dict[str, Any]:
    """Return a function for each engine, from a number of streams to the engine with so many."""
    import sherpa_onnx

    def open_sherpa(name: str) -> Any:
        return sherpa_onnx.OnlineRecognizer.from_wenet_ctc(
            tokens=str(onnx / name / "tokens.txt"),
            model=str(onnx / name / "model.onnx"),
            chunk_size=CHUNK,
            num_left_chunks=LEFT_CHUNKS,
            num_threads=1,
        )

    torch_model = load_model(str(folder), device="cpu")
    exported, exported_int8 = load_model(onnx / "streams"), load_model(onnx / "streams_int8")
    plain, quantised = open_sherpa("streaming"), open_sherpa("streaming_int8")
    return {
        "ours, torch": lambda count: Ours(torch_model, count),
        "ours": lambda count: Ours(exported, count),
        "ours int8": lambda count: Ours(exported_int8, count),
        "sherpa": lambda count: Sherpa(plain, count),
        "sherpa int8": lambda count: Sherpa(quantised, count),
    }


def whole_recordings(folder: Path, onnx: Path) -> dict[str, Any]:
    """Return a function for each engine, from recordings to their texts."""
    import sherpa_onnx

    def ours(path: Path) -> Any:
        recogniser = load_model(path, device="cpu")
        options = {"mode": "ctc_greedy_search", "pause": 0, "decoding": {"dtype": "fp32"}}
        return lambda talks: [
            result.text
            for result in recogniser.transcribe(samples=list(talks), sample_rate=RATE, **options)
        ]

    def sherpa(name: str) -> Any:
        recogniser = sherpa_onnx.OfflineRecognizer.from_wenet_ctc(
            tokens=str(onnx / name / "tokens.txt"),
            model=str(onnx / name / "model.onnx"),
            num_threads=1,
        )

        def texts(talks: Sequence[np.ndarray]) -> list[str]:
            streams = [recogniser.create_stream() for _ in talks]
            for stream, talk in zip(streams, talks, strict=True):
                stream.accept_waveform(RATE, talk)
            recogniser.decode_streams(streams)
            return [stream.result.text for stream in streams]

        return texts

    return {
        "ours, torch": ours(folder),
        "ours": ours(onnx / "streams"),
        "ours int8": ours(onnx / "streams_int8"),
        "sherpa": sherpa("offline"),
        "sherpa int8": sherpa("offline_int8"),
    }


def measure_whole(engines: dict[str, Any], talks: Sequence[np.ndarray]) -> Iterable[dict[str, Any]]:
    """Yield the speed of each engine with a batch of whole recordings."""
    expected: list[str] = []
    for name, recognise in engines.items():
        recognise(talks[:1])  # what is built at the first call
        began = time.process_time()
        texts = recognise(talks)
        elapsed = time.process_time() - began
        expected = expected or texts
        yield {
            "engine": name,
            "streams": 0,
            "speed": round(sum(map(len, talks)) / RATE / elapsed, 2),
            "p50_s": None,
            "p95_s": None,
            "differ": _differing(texts, expected),
        }


def _differing(texts: Sequence[str], expected: Sequence[str]) -> int:
    return sum(text != other for text, other in zip(texts, expected, strict=True))


def measure(engines: dict[str, Any], talks: Sequence[np.ndarray]) -> Iterable[dict[str, Any]]:
    """Yield the figures of each engine with a stream for each talk."""
    expected: list[str] = []
    for name, open_engine in engines.items():
        engine = open_engine(len(talks))
        audio_per_cpu = speed(engine, talks)
        texts = engine.texts()
        expected = expected or texts
        late = delays(open_engine(len(talks)), talks)
        yield {
            "engine": name,
            "streams": len(talks),
            "speed": round(audio_per_cpu, 2),
            "p50_s": round(float(np.quantile(late, 0.5)), 3),
            "p95_s": round(float(np.quantile(late, 0.95)), 3),
            "differ": _differing(texts, expected),
        }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("speech", type=Path, help="folder of recordings")
    parser.add_argument(
        "--blocks", type=int, default=12, help="layers of the encoder (default: %(default)s)"
    )
    parser.add_argument(
        "--width", type=int, default=256, help="width of the encoder (default: %(default)s)"
    )
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1, 8, 32, 64], help="(default: 1 8 32 64)"
    )
    parser.add_argument(
        "--files", type=int, default=8, help="whole recordings of a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--turns", type=int, default=1, help="measure all engines so often (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=12.0, help="of each talk (default: %(default)s)"
    )

    return parser.parse_args()


def main() -> None:
    """Measure all engines with each number of streams."""
    args = parse_arguments()
    torch.set_num_threads(1)
    size = int(args.seconds * RATE)
    most = max(args.files, *args.streams)
    speech = join_recordings(args.speech, max(30.0, args.seconds * most))
    talks = [
        speech[start : start + size].astype(np.float32) / 32768
        for start in range(0, size * most, size)
    ]
    results = []

    with tempfile.TemporaryDirectory() as name:
        folder = write_model(Path(name) / "run", speech, args.blocks, args.width)
        engines = engines_of(folder, export(folder, talks[0]))
        whole = whole_recordings(folder, folder / "onnx")
        print(
            f"{'streams':>7} {'engine':<12}{'audio s/CPU s':>14}{'p50, s':>9}{'p95, s':>9}"
            f"{'differ':>8}"
        )
        for _ in range(args.turns):
            rows = chain(
                measure_whole(whole, talks[: args.files]),
                *(measure(engines, talks[:count]) for count in args.streams),
            )
            for row in rows:
                results.append(row)
                delay = "".join(
                    f"{'–' if seconds is None else format(seconds, '.3f'):>9}"
                    for seconds in (row["p50_s"], row["p95_s"])
                )
                print(
                    f"{row['streams']:>7} {row['engine']:<12}{row['speed']:14.2f}"
                    f"{delay}{row['differ']:8}",
                    flush=True,
                )

    if args.json:
        packages = provenance("torch", "onnxruntime")
        args.speech = str(args.speech)
        print(json.dumps({"results": results, **packages, **settings(args)}))


if __name__ == "__main__":
    run(main)
