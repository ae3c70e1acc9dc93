#!/usr/bin/env python3
"""Error rate of a server for recordings with quiet around them, as from a microphone.

Each recording of a test part (wav.scp, text) is one stream of WeNet's WebSocket protocol, sent as
fast as the server takes it: faint white noise, the recording, faint white noise. The words of its
final texts are compared with the reference.

    python -m wenet_uio.bin.serve --model exp/train_conformer_en &
    python lab/benchmark/people.py --url http://127.0.0.1:10086 --quiet 0.3 0.3 data/people/test
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import numpy as np
import torch
from provenance import provenance
from serve_clients import RATE, speak

from wenet_uio.audio.read import read_audio
from wenet_uio.base.cli import run
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.words import WordRules
from wenet_uio.text.table import read_table

QUIET_LEVEL = 10 ** (-60 / 20)
"""Root mean square of the noise before and after a recording, as a share of full scale."""


def with_quiet(path: str, before: float, after: float, rng: np.random.Generator) -> np.ndarray:
    """Return a recording with seconds of faint noise around it, (N,) int16 at RATE."""
    samples, rate = read_audio(path)
    words = resample(torch.from_numpy(samples).float(), rate, RATE).numpy()
    noise = [
        rng.standard_normal(round(seconds * RATE)) * QUIET_LEVEL * 32768
        for seconds in (before, after)
    ]
    joined = np.concatenate([noise[0], words, noise[1]])
    return np.clip(np.rint(joined), -32768, 32767).astype(np.int16)


async def recognise(url: str, recordings: dict[str, np.ndarray], clients: int) -> dict[str, str]:
    """Return the final texts of the recordings by key; `clients` streams at once."""
    places = asyncio.Semaphore(clients)

    async def one(samples: np.ndarray) -> str:
        async with places:
            return " ".join((await speak(url, samples, None)).finals)

    texts = await asyncio.gather(*(one(samples) for samples in recordings.values()))
    return dict(zip(recordings, texts, strict=True))


def main() -> None:
    """Stream the recordings and print the error rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="test part: wav.scp and text")
    parser.add_argument("--url", default="http://127.0.0.1:10086", help="address of the server")
    parser.add_argument(
        "--quiet",
        nargs=2,
        type=float,
        default=(0.3, 0.3),
        metavar=("BEFORE", "AFTER"),
        help="seconds of faint noise before and after each recording",
    )
    parser.add_argument("--clients", type=int, default=4, help="streams at once")
    parser.add_argument("--seed", type=int, default=1, help="of the noise")
    parser.add_argument("--json", action="store_true", help="print all figures on the last line")
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    paths = read_table(args.folder / "wav.scp")
    before, after = args.quiet
    recordings = {key: with_quiet(path, before, after, rng) for key, path in paths.items()}
    texts = asyncio.run(recognise(args.url, recordings, args.clients))

    counts = score(read_table(args.folder / "text"), texts, WordRules()).overall
    print(f"quiet {before:g} s before, {after:g} s after: WER {counts}")
    if args.json:
        figures = {"quiet": args.quiet, "wer": counts.rate, "words": counts.words}
        print(json.dumps({**provenance(), **figures}))


if __name__ == "__main__":
    run(main)
