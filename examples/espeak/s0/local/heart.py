"""Speech synthesis by the voice heart of hibari, a small neural network that learned from Kokoro.

The model comes with the package hibari-tts (14 MB, Apache-2.0): one American woman.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
import torch
from espeak import SAMPLE_RATE, NoSpeechError
from hibari import Hibari  # pyright: ignore[reportMissingImports] - of the recipe
from voices import NORMAL_WORDS_PER_MINUTE, Setting

from wenet_uio.dataset.chain.waveform import resample

SPEEDS = (0.5, 2.0)
"""Slowest and fastest speech of the network; 1 is its own pace."""


def speak(text: str, setting: Setting) -> np.ndarray:
    """Synthesise `text` as samples (T,) int16 at SAMPLE_RATE.

    The same call always gives the same samples.

    Raises:
        NoSpeechError: the text has no phonemes.
    """
    speed = float(np.clip(setting.words_per_minute / NORMAL_WORDS_PER_MINUTE, *SPEEDS))
    seed = zlib.crc32(f"{text} {setting}".encode())
    network = _voice()
    if not any(symbol.isalpha() for symbol in "".join(network.phonemize(text))):
        raise NoSpeechError(f"{text!r} has no phoneme that the voice {setting.voice} can speak")

    samples = network(text, speed, seed)
    spoken = torch.from_numpy(np.asarray(samples, dtype=np.float32))
    scaled = resample(spoken, Hibari.sample_rate, SAMPLE_RATE).numpy()
    return np.rint(np.clip(scaled, -1, 1) * 32767).astype(np.int16)


@lru_cache(maxsize=1)
def _voice() -> Hibari:
    return Hibari()
