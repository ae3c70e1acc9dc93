#!/usr/bin/env python3
"""Write a noised copy of a test set: each utterance with babble of three training utterances, or with pink noise.

The signal-to-noise ratio is 5, 10 or 15 dB. All is drawn from the key, so that each call writes the same audio.
"""

from __future__ import annotations

import argparse
import shutil
import zlib
from pathlib import Path

import numpy as np
import soundfile

from wenet_uio.cli import run
from wenet_uio.prepare.kaldi_tables import write_table
from wenet_uio.text.table import read_table

RATIOS = (5.0, 10.0, 15.0)
TALKERS = 3


def pink(count: int, draw: np.random.Generator) -> np.ndarray:
    """(count,) noise whose power falls with the frequency."""
    spectrum = np.fft.rfft(draw.normal(size=count))
    return np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 1), count)


def read(path: str) -> tuple[np.ndarray, int]:
    """Samples (count,) and sample rate of a mono recording."""
    samples, rate = soundfile.read(path, dtype="float64", always_2d=True)
    return samples[:, 0], rate


def noised(key: str, path: str, talkers: list[str]) -> tuple[np.ndarray, int]:
    """Samples (count,) of an utterance with noise, and the sample rate."""
    draw = np.random.default_rng(zlib.crc32(key.encode()))
    speech, rate = read(path)
    if draw.random() < 0.5:
        noise = pink(len(speech), draw)
    else:
        voices = [read(talkers[number])[0] for number in draw.integers(len(talkers), size=TALKERS)]
        noise = sum(np.resize(voice / (np.std(voice) + 1e-9), len(speech)) for voice in voices)
    wanted = np.std(speech) / 10 ** (draw.choice(RATIOS) / 20)
    mixed = speech + noise * wanted / (np.std(noise) + 1e-9)
    return mixed * min(1.0, 0.99 / np.abs(mixed).max()), rate


def main() -> None:
    """Write the audio and the tables of the noised set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clean", type=Path, help="folder of the test set, with wav.scp and text")
    parser.add_argument("talkers", type=Path, help="wav.scp whose recordings are the babble")
    parser.add_argument("out", type=Path, help="folder to write")
    args = parser.parse_args()
    talkers = sorted(read_table(args.talkers).values())
    (args.out / "audio").mkdir(parents=True, exist_ok=True)
    paths = {}
    for key, path in read_table(args.clean / "wav.scp").items():
        samples, rate = noised(key, path, talkers)
        paths[key] = args.out.absolute() / "audio" / f"{key}.flac"
        soundfile.write(paths[key], samples, rate)
    write_table(args.out / "wav.scp", ((key, str(path)) for key, path in paths.items()))
    for table in ("text", "utt2lang"):
        shutil.copyfile(args.clean / table, args.out / table)
    print(f"{args.out}: {len(paths)} utterances")


if __name__ == "__main__":
    run(main)
