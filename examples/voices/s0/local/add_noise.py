#!/usr/bin/env python3
"""Write a noised copy of a test set: each utterance with babble of three training utterances, or
with pink noise.

The signal-to-noise ratio is 5, 10 or 15 dB. All is drawn from the key, so that each call writes the
same audio.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from random import Random

import soundfile
import torch

from wenet_uio.base.cli import run
from wenet_uio.dataset.chain.noise import TABLE, coloured_noise, mixed, power
from wenet_uio.dataset.chain.recordings import repeated
from wenet_uio.prepare.kaldi_tables import write_table
from wenet_uio.text.table import read_table

RATIOS = (5.0, 10.0, 15.0)
TALKERS = 3
PINK = 1
"""Exponent of the colour."""


def read(path: str) -> tuple[torch.Tensor, int]:
    """Return samples (count,) and sample rate of a mono recording."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples[:, 0]), rate


def noised(key: str, path: str, talkers: list[str]) -> tuple[torch.Tensor, int]:
    """Return samples (count,) of an utterance with noise, and the sample rate."""
    random = Random(key)
    speech, rate = read(path)
    if random.random() < 0.5:
        noise = repeated(coloured_noise(PINK), random.randrange(TABLE), len(speech))
    else:
        voices = [read(path)[0] for path in random.choices(talkers, k=TALKERS)]
        equally_loud = [voice / power(voice) ** 0.5 for voice in voices]
        babble = [repeated(voice, 0, len(speech)) for voice in equally_loud]
        noise = torch.stack(babble).sum(0)

    noisy = mixed(speech, noise, random.choice(RATIOS))
    scale = min(1.0, 0.99 / float(noisy.abs().max()))  # no sample may be clipped
    return noisy * scale, rate


def main() -> None:
    """Write the audio and the tables of the noised set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        soundfile.write(paths[key], samples.numpy(), rate)

    write_table(args.out / "wav.scp", ((key, str(path)) for key, path in paths.items()))
    for table in ("text", "utt2lang"):
        shutil.copyfile(args.clean / table, args.out / table)

    print(f"{args.out}: {len(paths)} utterances")


if __name__ == "__main__":
    run(main)
