#!/usr/bin/env python3
"""transcribe.py on a long recording: error rate compared with the same utterances one by one, speed
and memory.

Utterances of a test set are joined in random order (repeated if they are too few), with pauses of
random length that hold faint noise. The tool runs in its own process, on one thread, on the whole
recording and on its first minute. Equal memory in both runs shows that memory does not grow with
length. --transcribe passes options on to the tool:

    python lab/benchmark/transcribe.py --model exp/conformer --data_list data/test/data.list
    python lab/benchmark/transcribe.py --model exp/conformer --data_list data/test/data.list
    --transcribe --pause 0.2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch
from provenance import benchmark_parser, provenance, settings

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.read import read_audio
from wenet_uio.base.cli import run
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.types import AudioUtterance, SampleRef
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.words import WordRules
from wenet_uio.search import DecodeOptions
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import load_recogniser, use_static_batches
from wenet_uio.search.recognition import recognize

MODE = "ctc_prefix_beam_search"
BATCH_SIZE = 32
TOOL = """
import atexit, runpy, sys
from pathlib import Path
peak = Path(sys.argv.pop(1))
atexit.register(lambda: peak.write_text(Path("/proc/self/status").read_text()))
runpy.run_module("wenet_uio.bin.transcribe", run_name="__main__", alter_sys=True)
"""
"""Runs transcribe.py, which notes its peak memory: `ru_maxrss` of a child begins with the memory of
its parent."""


class Joined(NamedTuple):
    """A long recording and its transcript."""

    waveform: np.ndarray
    """(samples,) int16."""
    sample_rate: int
    said: list[tuple[str, str]]
    """Key and text of each utterance, in order."""


def join(
    data_list: str,
    data_type: DataType,
    seconds: float,
    pauses: tuple[float, float],
    noise: float,
    seed: int,
) -> Joined:
    """Join utterances into a recording of at least `seconds`.

    Args:
        pauses: shortest and longest pause before an utterance, seconds.
        noise: level of the noise in the pauses, dB of full scale.

    Raises:
        ValueError: the utterances have different sample rates, or one has no audio.
    """
    draw = np.random.default_rng(seed)
    corpus = open_list(data_list, data_type)
    refs = [
        SampleRef(shard, row)
        for shard in range(corpus.num_shards)
        for row in range(corpus.samples[shard])
    ]
    parts: list[np.ndarray] = []
    texts: list[tuple[str, str]] = []
    length, sample_rate = 0, 0
    while not sample_rate or length < seconds * sample_rate:
        for place in draw.permutation(len(refs)):
            utterance = corpus.read(refs[place])
            if not isinstance(utterance, AudioUtterance):
                raise ValueError(f"{data_list}: {utterance.key} has no audio")

            waveform, rate = read_audio(utterance.audio, utterance.start, utterance.end)
            if sample_rate not in (0, rate):
                raise ValueError(
                    f"{data_list}: utterances of {sample_rate} and {rate} Hz; expected one sample "
                    "rate"
                )

            sample_rate = rate
            quiet = draw.normal(
                0, INT16_SCALE * 10 ** (noise / 20), round(draw.uniform(*pauses) * rate)
            )
            parts += [quiet.astype(np.float32), waveform]
            texts.append((utterance.key, utterance.text))
            length += len(parts[-1]) + len(parts[-2])
            if length >= seconds * rate:
                break

    waveform = np.concatenate(parts)
    return Joined(
        waveform.round().clip(-INT16_SCALE, INT16_SCALE - 1).astype(np.int16), sample_rate, texts
    )


def recognize_cut(
    model_dir: str, data_list: str, data_type: DataType, trust_code: bool
) -> dict[str, str]:
    """Recognise the utterances one by one; return {key: text}."""
    recogniser = load_recogniser(model_dir, trust_code=trust_code)
    config = use_static_batches(recogniser.config, BATCH_SIZE)
    loader = build_loader(data_list, data_type, config, recogniser.tokenizer, training=False)
    search = Search([MODE], DecodeOptions())

    return recognize(recogniser, loader, search, device=torch.device("cpu")).texts[MODE]


class Run(NamedTuple):
    """Result of a run of transcribe.py."""

    passages: list[dict]
    cpu_seconds: float
    memory_mb: float
    """Peak memory of the process."""


def transcribe(path: Path, model_dir: str, options: list[str]) -> Run:
    """Transcribe a file in a new process.

    Raises:
        ValueError: the process failed.
    """
    with tempfile.NamedTemporaryFile("r") as peak:
        tool = [
            sys.executable,
            "-c",
            TOOL,
            peak.name,
            "--model",
            model_dir,
            "--device",
            "cpu",
            "--mode",
            MODE,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [*tool, "--format", "json", *options, path], stdout=subprocess.PIPE, env=environment
        ) as child:
            assert child.stdout is not None  # it is a pipe
            printed = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)

        if child.returncode:
            raise ValueError(f"transcribe.py of {model_dir}: exit status {child.returncode}")

        kilobytes = next(int(line.split()[1]) for line in peak if line.startswith("VmHWM"))

    passages = json.loads(printed)["passages"]
    return Run(passages, usage.ru_utime + usage.ru_stime, kilobytes / 1024)


def run_tool(joined: Joined, model_dir: str, options: list[str]) -> tuple[Run, Run]:
    """Transcribe the whole recording and its first minute."""
    with tempfile.TemporaryDirectory() as folder:
        whole, minute = Path(folder, "whole.wav"), Path(folder, "minute.wav")
        soundfile.write(whole, joined.waveform, joined.sample_rate)
        soundfile.write(minute, joined.waveform[: 60 * joined.sample_rate], joined.sample_rate)
        short = transcribe(minute, model_dir, options)
        return transcribe(whole, model_dir, options), short


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--model",
        required=True,
        metavar="DIR",
        help="experiment folder with train.yaml and avg.pt or final.pt",
    )
    parser.add_argument("--data_list", required=True, help="data list of the test set")
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of --data_list (default: raw)",
    )
    parser.add_argument("--char", action="store_true", help="count each ideograph as a word")
    parser.add_argument(
        "--minutes",
        type=float,
        default=10,
        help="least length of the recording (default: %(default)s)",
    )
    parser.add_argument(
        "--pauses",
        type=float,
        nargs=2,
        default=(0.1, 1.0),
        metavar="S",
        help="shortest and longest pause, seconds (default: 0.1 1.0)",
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=-70,
        metavar="DB",
        help="level of the noise in pauses, dB of full scale (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of order and pauses (default: %(default)s)"
    )
    parser.add_argument(
        "--transcribe",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="OPTION",
        help="options for transcribe.py",
    )

    return parser.parse_args()


def main() -> None:
    """Join a recording, transcribe it, and print the report."""
    args = parse_arguments()
    joined = join(
        args.data_list, args.data_type, args.minutes * 60, args.pauses, args.noise, args.seed
    )
    done, short = run_tool(joined, args.model, args.transcribe)

    rules = WordRules("auto" if args.char else "word")
    text = " ".join(passage["text"] for passage in done.passages)
    of_joined = score(
        {"all": " ".join(text for _, text in joined.said)}, {"all": text}, rules
    ).overall
    torch.set_num_threads(1)
    recognised = recognize_cut(
        args.model, args.data_list, args.data_type, "--trust_code" in args.transcribe
    )
    references = {f"{place} {key}": text for place, (key, text) in enumerate(joined.said)}
    of_cut = score(
        references, {name: recognised.get(name.split(" ", 1)[1], "") for name in references}, rules
    ).overall

    seconds = len(joined.waveform) / joined.sample_rate
    lengths = [passage["end"] - passage["start"] for passage in done.passages] or [0.0]
    report = {
        "seconds": round(seconds, 1),
        "utterances": len(joined.said),
        "wer_joined": round(of_joined.rate, 2),
        "wer_cut": round(of_cut.rate, 2),
        "passages": len(done.passages),
        "median_passage_s": round(float(np.median(lengths)), 2),
        "longest_passage_s": round(max(lengths), 2),
        "real_time_factor": round(done.cpu_seconds / seconds, 4),
        "memory_mb": round(done.memory_mb),
        "memory_of_a_minute_mb": round(short.memory_mb),
    }
    print("\n".join(f"{name:22} {value}" for name, value in report.items()))
    print(f"joined: {of_joined}\ncut:    {of_cut}")
    if args.json:
        print(json.dumps({**report, **settings(args), **provenance("torch", "torchaudio")}))


if __name__ == "__main__":
    run(main)
