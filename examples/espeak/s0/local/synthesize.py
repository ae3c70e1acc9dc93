#!/usr/bin/env python3
"""Synthesise a corpus: speak commands with eSpeak NG and two neural voices.

The commands are those of a small grammar. Every utterance has a random voice, speed, pitch,
formants, noise and microphone, and quiet before and after it. Half of train and dev are commands of
which each is spoken once; the others are a digit, a few digits, a number, on or off. Test has
commands only. Train, dev and test have different voices. The
tool writes DIR/manifest.tsv (key, part, wav, voice, words per minute, pitch, formants, seconds of
quiet before and after, SNR in dB, text) and DIR/wav/<part>/<key>.wav (mono, 16 bit, 22050 Hz). A
key has a digest of everything that determines its audio, so a repeated run makes only missing
files. The same options give the same bytes on one machine.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import random
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

import soundfile
from espeak import SAMPLE_RATE
from grammar import GRAMMARS, sentence, sentences
from joe import forget
from speech import speech
from voices import (
    Setting,
    add_noise,
    add_quiet,
    colour,
    draw_quiet,
    draw_setting,
    draw_snr,
    draw_voice,
)

from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor, chunks
from wenet_uio.base.files import written_aside

LINES_PER_JOB = 50
COLUMNS = (
    "key",
    "part",
    "wav",
    "voice",
    "words_per_minute",
    "pitch",
    "formants",
    "quiet_before",
    "quiet_after",
    "snr",
    "text",
)


@dataclass(frozen=True)
class Line:
    """One utterance of the corpus."""

    part: str
    setting: Setting
    quiet: tuple[float, float]
    """Seconds before and after the words."""
    snr: int | None
    text: str
    seed: int

    @property
    def key(self) -> str:
        """Voice, and a digest of all fields."""
        digest = hashlib.sha256(repr(self).encode("utf-8")).hexdigest()
        return f"{self.setting.voice.replace('+', '_')}_{digest[:12]}"

    def wav(self, folder: Path) -> Path:
        """Return the path of the audio in the folder of the corpus."""
        return folder / "wav" / self.part / f"{self.key}.wav"


def draw(lang: str, counts: dict[str, int], seed: int) -> list[Line]:
    """Draw the lines of a corpus.

    Args:
        counts: part -> number of utterances.
    """
    rng = random.Random(seed)
    grammar = GRAMMARS[lang]
    commands = iter(sentences(grammar, sum(counts.values()), rng))
    lines: list[Line] = []
    for part, count in counts.items():
        for number in range(count):
            # Two of four, so that half of the texts of --hybrid, every second one, are short too.
            is_short = part != "test" and number % 4 >= 2
            text = sentence(grammar, rng, "short") if is_short else next(commands)
            setting = draw_setting(draw_voice(lang, part, rng), rng)
            quiet, snr = draw_quiet(rng), draw_snr(rng)
            lines.append(Line(part, setting, quiet, snr, text, rng.getrandbits(32)))

    return lines


def synthesize(lines: list[Line], folder: Path) -> None:
    """Write the audio of lines."""
    forget(lines[0].seed % 2**31)
    for line in lines:
        words = add_quiet(speech(line.text, line.setting), *line.quiet, SAMPLE_RATE)
        samples = colour(add_noise(words, line.snr, line.seed), SAMPLE_RATE, line.seed)
        with written_aside(line.wav(folder)) as file:
            soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="PCM_16")


def write_manifest(lines: list[Line], folder: Path) -> None:
    """Write manifest.tsv, one row per line of the corpus."""
    with written_aside(folder / "manifest.tsv", "w") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for line in lines:
            wav = line.wav(folder).relative_to(folder)
            sound = (*astuple(line.setting), *line.quiet, line.snr)
            writer.writerow([line.key, line.part, wav, *sound, line.text])


def main() -> None:
    """Draw the corpus, speak missing lines in parallel, and write the manifest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder to write the corpus to")
    parser.add_argument("--lang", choices=sorted(GRAMMARS), default="en")
    parser.add_argument("--num_train", type=int, default=2000, help="utterances")
    parser.add_argument("--num_dev", type=int, default=100, help="utterances")
    parser.add_argument("--num_test", type=int, default=200, help="utterances")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nj", type=int, default=1, help="processes")
    args = parser.parse_args()

    counts = {"train": args.num_train, "dev": args.num_dev, "test": args.num_test}
    lines = draw(args.lang, counts, args.seed)
    missing = [
        group
        for group in chunks(lines, LINES_PER_JOB)
        if not all(line.wav(args.folder).is_file() for line in group)
    ]
    work = partial(synthesize, folder=args.folder)
    for _ in Executor(args.nj).map(work, missing, "synthesize", sum(map(len, missing)), size=len):
        pass

    write_manifest(lines, args.folder)


if __name__ == "__main__":
    run(main)
