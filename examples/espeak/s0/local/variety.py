#!/usr/bin/env python3
"""Measure in half a minute how a variety of synthetic speech transfers to people.

The ten digits are spoken by the voices that the options allow. A small convolutional network learns
to tell them apart, with the rooms, noise, bands and levels of the training config. Then it hears
the recordings of a test part (wav.scp, text), which have one digit each. The network is a stand-in
for the recogniser: its errors rank the varieties, and are not those of the recogniser.

    local/variety.py data/people/test --variants 10                   # as few voices as there once were
    local/variety.py data/people/test --formants --microphones --networks joe heart
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from espeak import SAMPLE_RATE
from grammar import ENGLISH
from joe import forget
from speech import NETWORKS, speech
from torch import nn
from voices import LANGUAGES, VARIANTS, add_quiet, colour, draw_setting

from wenet_uio.audio.read import read_audio
from wenet_uio.base.cli import run
from wenet_uio.config import load_config
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.features import ComputeFbank
from wenet_uio.dataset.chain.waveform import Resample
from wenet_uio.dataset.chain.waveform_augment import waveform_augmentations
from wenet_uio.dataset.types import Example, Operator, feats_of
from wenet_uio.text.table import read_table

DIGITS = ENGLISH["digit"]
FRAMES = 120
"""Frames that the network hears; longer words are cut, shorter ones repeat their last frame."""
QUIET = 0.2
"""Seconds of quiet before and after a word, at most."""
HEARINGS = 3
"""Draws of rooms, noise, bands and levels for each word."""
BATCH = 64
CHANNELS = 96
RATE = 4e-3
"""Highest learning rate."""


def draw_words(
    count: int, variants: int, networks: Sequence[str], formants: bool, microphones: bool
) -> list[tuple[str, np.ndarray]]:
    """Speak `count` digits: (digit, samples int16 at SAMPLE_RATE). Each network speaks as many as
    the variants of eSpeak NG together.
    """
    rng = random.Random(1)
    forget(1)
    speakers = ("espeak", *networks)
    words: list[tuple[str, np.ndarray]] = []
    for number in range(count):
        digit, language = DIGITS[number % len(DIGITS)], rng.choice(LANGUAGES["en"])
        speaker = speakers[number // len(DIGITS) % len(speakers)]
        variant = rng.choice(VARIANTS["train"][:variants])
        voice = f"{language}+{variant}" if speaker == "espeak" else f"{speaker}+{language}"
        setting = draw_setting(voice, rng)

        samples = speech(digit, setting if formants else replace(setting, formants=1.0))
        samples = add_quiet(samples, rng.uniform(0, QUIET), rng.uniform(0, QUIET), SAMPLE_RATE)
        words.append((digit, colour(samples, SAMPLE_RATE, number) if microphones else samples))

    return words


def chain_of(conf: DatasetConf, *, training: bool) -> tuple[Operator, ...]:
    """Return the operators from a waveform to features; those of training add rooms and noise."""
    augmentations = waveform_augmentations(conf, None, training=training)
    return (
        Resample(conf.resample_conf.resample_rate),
        *(operator for operators in augmentations.values() for operator in operators),
        ComputeFbank(conf.fbank_conf),
    )


def features(
    words: Sequence[tuple[str, np.ndarray]],
    rates: Sequence[int],
    chain: tuple[Operator, ...],
    hearings: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (N, FRAMES, bins) and numbers of the digits (N,) of words."""
    heard: list[torch.Tensor] = []
    for number, ((digit, samples), rate) in enumerate(zip(words, rates, strict=True)):
        waveform = torch.from_numpy(samples.astype(np.float32))
        for hearing in range(hearings):
            example = Example(digit, digit, waveform, rate, random=number * hearings + hearing)
            for operator in chain:
                example = operator(example)

            frames = feats_of(example)
            places = torch.arange(FRAMES).clamp(max=len(frames) - 1)
            heard.append(frames[places])

    labels = [DIGITS.index(digit) for digit, _ in words for _ in range(hearings)]
    return torch.stack(heard), torch.tensor(labels)


class Classifier(nn.Module):
    """Four convolutions over time, the mean and the maximum over time, and one linear layer."""

    def __init__(self, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        """Normalise features by `mean` and `deviation` (bins,)."""
        super().__init__()
        self.mean, self.deviation = mean, deviation
        layers: list[nn.Module] = []
        for inputs, stride in ((len(mean), 2), (CHANNELS, 2), (CHANNELS, 1), (CHANNELS, 1)):
            layers += [
                nn.Conv1d(inputs, CHANNELS, 5, stride, 2),
                nn.BatchNorm1d(CHANNELS),
                nn.ReLU(),
                nn.Dropout(0.2),
            ]
        self.convolutions = nn.Sequential(*layers)
        self.output = nn.Linear(2 * CHANNELS, len(DIGITS))

    def forward(self, feats: torch.Tensor) -> torch.Tensor:
        """Return logits (B, digits) of features (B, T, bins)."""
        normalised = (feats - self.mean) / self.deviation
        hidden = self.convolutions(normalised.transpose(1, 2))
        return self.output(torch.cat([hidden.mean(2), hidden.amax(2)], 1))


def train(feats: torch.Tensor, labels: torch.Tensor, epochs: int) -> Classifier:
    """Train a classifier; the learning rate rises and falls once."""
    torch.manual_seed(1)
    classifier = Classifier(feats.mean((0, 1)), feats.std((0, 1)))
    optimizer = torch.optim.AdamW(classifier.parameters(), weight_decay=1e-2)
    steps = epochs * -(-len(feats) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)

    for _ in range(epochs):
        for rows in torch.randperm(len(feats)).split(BATCH):
            loss = loss_of(classifier(feats[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

    return classifier.eval()


def main() -> None:
    """Print the error rate of one variety."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("people", type=Path, help="test part of single digits: wav.scp and text")
    parser.add_argument("--words", type=int, default=600, help="number of spoken digits")
    parser.add_argument(
        "--variants", type=int, default=len(VARIANTS["train"]), help="of eSpeak NG, the first ones"
    )
    parser.add_argument("--networks", nargs="*", default=(), choices=sorted(NETWORKS))
    parser.add_argument("--formants", action="store_true", help="draw the vocal tract too")
    parser.add_argument("--microphones", action="store_true", help="draw a microphone too")
    parser.add_argument("--config", default="conf/train_conformer.yaml", help="what training hears")
    parser.add_argument("--epochs", type=int, default=14)
    args = parser.parse_args()

    begin = time.process_time()
    conf = load_config(args.config, trust_code=True).dataset_conf
    words = draw_words(args.words, args.variants, args.networks, args.formants, args.microphones)
    chain = chain_of(conf, training=True)
    spoken, labels = features(words, [SAMPLE_RATE] * len(words), chain, HEARINGS)
    classifier = train(spoken, labels, args.epochs)

    texts, paths = read_table(args.people / "text"), read_table(args.people / "wav.scp")
    recordings = {key: read_audio(path) for key, path in paths.items()}
    recorded = [(texts[key], samples) for key, (samples, _) in recordings.items()]
    rates = [rate for _, rate in recordings.values()]
    feats, digits = features(recorded, rates, chain_of(conf, training=False))
    with torch.inference_mode():
        wrong = (classifier(feats).argmax(1) != digits).sum().item()

    seconds = time.process_time() - begin
    print(f"{100 * wrong / len(digits):.1f} % of {len(digits)} digits wrong, {seconds:.0f} CPU s")


if __name__ == "__main__":
    run(main)
