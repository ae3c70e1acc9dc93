"""A model that hears tones as letters and everything else as silence; made in a second, without
training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tests.addons.listen.conftest import RATE, write_model
from wenet_uio.addons.listen.transcription import Transcriber
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import load_recogniser
from wenet_uio.search.types import DecodeOptions

TONES = {"a": 500.0, "b": 1100.0, "c": 2000.0, "d": 3200.0}
"""{letter: Hz}"""
TONE = 0.3
"""Seconds of a tone."""


def tones(text: str, rate: int = RATE, seed: int = 0, pause: float = 0.1) -> np.ndarray:
    """Samples (N,) from -1 to 1 in noise of -70 dB: a tone for each letter, then `pause`; a digit
    is that many seconds of noise.
    """
    parts = []
    for letter in text:
        if letter.isdigit():
            parts.append(np.zeros(int(letter) * rate))
            continue
        times = np.arange(round(TONE * rate)) / rate
        parts += [0.1 * np.sin(2 * np.pi * TONES[letter] * times), np.zeros(round(pause * rate))]
    samples = np.concatenate(parts)
    return (samples + np.random.default_rng(seed).normal(0, 0.0003, len(samples))).astype(
        np.float32
    )


def write_tone_model(folder: Path, **encoder) -> Path:
    """`write_model` with a CTC layer that is fitted to tones by least squares; `encoder` changes
    encoder_conf.
    """
    write_model(folder, **{"output_size": 64, "attention_heads": 4, **encoder})
    recogniser = load_recogniser(folder)
    chunk = 4 if recogniser.model.encoder.traits.dynamic_chunks else -1
    transcriber = Transcriber(recogniser, Search(["ctc_greedy_search"], DecodeOptions()))
    draw = np.random.default_rng(0)
    letters = draw.choice(list("abcd11"), 300)
    outputs, targets = [], []
    for first in range(0, len(letters), 8):
        text = "1" + "".join(letters[first : first + 8])
        begin = draw.choice([0, 0.5, 1.1, 1.2, 1.4])  # utterances and windows may begin anywhere
        waveform = torch.from_numpy(tones(text, seed=first)[round(begin * RATE) :] * 32768)
        example = transcriber.features("", waveform, RATE)
        lengths = torch.tensor([len(example.feats)])
        with torch.no_grad():
            frames = recogniser.model.encode(example.feats[None], lengths, chunk)[0][0]
        outputs.append(frames.double())
        targets.append(_labels(text, begin, len(frames), recogniser))
    ones = torch.ones(sum(map(len, outputs)), 1, dtype=torch.float64)
    inputs = torch.cat((torch.cat(outputs), ones), dim=1)
    wanted = torch.nn.functional.one_hot(torch.cat(targets), recogniser.model.vocab_size).double()
    solution = torch.linalg.lstsq(inputs, 24 * wanted).solution.float()
    layer = recogniser.model.ctc.ctc_lo
    layer.weight.data, layer.bias.data = solution[:-1].T.contiguous(), solution[-1].contiguous()
    torch.save(recogniser.model.state_dict(), folder / "final.pt")
    return folder


def _labels(text: str, begin: float, frames: int, recogniser) -> torch.Tensor:
    """The label of each encoder frame of the tones from the time `begin`."""
    labels = torch.zeros(frames, dtype=torch.int64)
    at = -begin
    times = torch.tensor([recogniser.clock.middle(frame) for frame in range(frames)])
    for letter in text:
        if letter.isdigit():
            at += int(letter)
            continue
        labels[(times >= at) & (times < at + TONE)] = recogniser.tokenizer.symbols[letter]
        at += TONE + 0.1
    return labels
