"""Voices of the recipe, and the noise of a recording."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

LANGUAGES = {
    "en": (
        "en",
        "en-us",
        "en-us-nyc",
        "en-029",
        "en-gb-scotland",
        "en-gb-x-rp",
        "en-gb-x-gbclan",
        "en-gb-x-gbcwmd",
    ),
    "zh": ("cmn",),
}
VARIANTS = {
    "train": ("m1", "m2", "m3", "m4", "m5", "m6", "f1", "linda", "steph", "Annie"),
    "dev": ("m7", "Andrea"),
    "test": ("m8", "f4"),
}
"""Variants without breath, since breath sounds different each time."""
WORDS_PER_MINUTE = (140, 210)
PITCH = (30, 70)
SNRS = (None, 30, 20, 15)
"""Decibels; None is no noise."""
NOISE_SLOPES = (0.0, 1.0, 2.0)
"""Power of the noise falls as 1/frequency**slope: white, pink, brown."""


@dataclass(frozen=True)
class Setting:
    """How a sentence is spoken."""

    voice: str
    """Language and variant, separated by a plus: en-us+f3."""
    words_per_minute: int
    pitch: int
    """0 to 99; 50 is the voice's own."""


def draw_voice(lang: str, part: str, rng: random.Random) -> str:
    """Draw a voice of a part of the corpus."""
    return f"{rng.choice(LANGUAGES[lang])}+{rng.choice(VARIANTS[part])}"


def voices(lang: str, part: str) -> list[str]:
    """Return all voices of a part of the corpus."""
    return [f"{language}+{variant}" for language in LANGUAGES[lang] for variant in VARIANTS[part]]


def draw_setting(voice: str, rng: random.Random) -> Setting:
    """Draw the speed and the pitch of a voice."""
    return Setting(voice, rng.randint(*WORDS_PER_MINUTE), rng.randint(*PITCH))


def draw_snr(rng: random.Random) -> int | None:
    """Draw the distance of the noise in decibels; None is no noise."""
    return rng.choice(SNRS)


def add_noise(samples: np.ndarray, snr: float | None, seed: int) -> np.ndarray:
    """Add coloured noise, `snr` dB below the samples (T,) int16; None adds none."""
    if snr is None:
        return samples

    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    slope = rng.choice(NOISE_SLOPES)
    spectrum /= np.arange(1, len(spectrum) + 1) ** (slope / 2)
    noise = np.fft.irfft(spectrum, len(samples))
    power_ratio = np.mean(samples.astype(np.float64) ** 2) / np.mean(noise**2)
    noise *= np.sqrt(power_ratio) * 10 ** (-snr / 20)

    return np.clip(np.rint(samples + noise), -32768, 32767).astype(np.int16)
