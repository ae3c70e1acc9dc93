"""Voices of the recipe, how they speak, and the sound of a recording."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

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
TRAINING_VARIANTS = """
m1 m2 m3 m4 m5 m6 f1 linda steph steph2 steph3 Annie Alex Andy AnxiousAndy Denis Diogo Gene Gene2
Henrique Hugo Jacky Lee Marco Mario Michael Mike Nguyen Reed RicishayMax RicishayMax2 RicishayMax3
Storm Tweaky adam anika announcer antonio aunty belinda benjamin boris caleb david ed edward edward2
grandma grandpa gustave ian iven iven2 iven3 iven4 john kaukovalta klatt klatt2 klatt3 klatt4 klatt5
klatt6 marcelo max michel miguel mike2 norbert pablo paul pedro quincy rob robert shelby travis zac
"""
VARIANTS = {
    "train": tuple(TRAINING_VARIANTS.split()),
    "dev": ("m7", "Andrea"),
    "test": ("m8", "f4"),
}
"""All variants of eSpeak NG except robots and those with breath, since breath sounds different each
time."""
NETWORKS = {"en": {"joe": 0.35, "heart": 0.2}, "zh": {}}
"""Voices of local/joe.py and local/heart.py, and their shares of the training utterances. They
stand in place of a language: joe+en-us speaks with the phonemes of en-us."""
WORDS_PER_MINUTE = (110, 240)
NORMAL_WORDS_PER_MINUTE = 170
"""Speed of the voices of NETWORKS at their own pace; the default of eSpeak NG is 175."""
PITCH = (10, 90)
FORMANTS = (0.85, 1.2)
"""Range of the factor of all frequencies: below 1 a longer vocal tract, above 1 a shorter one."""
SNRS = (None, 30, 20, 15)
"""Decibels; None is no noise."""
NOISE_SLOPES = (0.0, 1.0, 2.0)
"""Power of the noise falls as 1/frequency**slope: white, pink, brown."""
OCTAVES = (63, 125, 250, 500, 1000, 2000, 4000, 8000)
"""Frequencies in Hz at which the gain of a microphone is drawn."""
COLOUR = 4.0
"""Standard deviation of these gains, in dB."""
QUIET = (0.0, 1.0)
"""Seconds before and after the words; every third recording has none, like a trimmed clip."""


@dataclass(frozen=True)
class Setting:
    """How a sentence is spoken."""

    voice: str
    """Language and variant, separated by a plus: en-us+f3; or a network and a language:
    joe+en-us."""
    words_per_minute: int
    pitch: int
    """0 to 99; 50 is the voice's own. Networks have one pitch."""
    formants: float = 1.0
    """Factor of all frequencies; the duration stays that of the speed."""

    @property
    def before_scaling(self) -> Setting:
        """How the voice speaks before `scale_frequencies`, which divides durations by the factor."""
        return replace(self, words_per_minute=round(self.words_per_minute / self.formants))


def draw_voice(lang: str, part: str, rng: random.Random) -> str:
    """Draw a voice of a part of the corpus."""
    language = rng.choice(LANGUAGES[lang])
    draw = rng.random()
    for network, share in NETWORKS[lang].items() if part == "train" else ():
        if draw < share:
            return f"{network}+{language}"
        draw -= share

    return f"{language}+{rng.choice(VARIANTS[part])}"


def voices(lang: str, part: str) -> list[str]:
    """Return all voices of eSpeak NG of a part of the corpus."""
    return [f"{language}+{variant}" for language in LANGUAGES[lang] for variant in VARIANTS[part]]


def draw_setting(voice: str, rng: random.Random) -> Setting:
    """Draw the speed, the pitch and the formants of a voice."""
    return Setting(
        voice,
        rng.randint(*WORDS_PER_MINUTE),
        rng.randint(*PITCH),
        round(rng.uniform(*FORMANTS), 3),
    )


def draw_snr(rng: random.Random) -> int | None:
    """Draw the distance of the noise in decibels; None is no noise."""
    return rng.choice(SNRS)


def draw_quiet(rng: random.Random) -> tuple[float, float]:
    """Draw the seconds of quiet before and after the words."""
    if rng.random() < 1 / 3:
        return 0.0, 0.0
    return round(rng.uniform(*QUIET), 3), round(rng.uniform(*QUIET), 3)


def scale_frequencies(samples: np.ndarray, factor: float) -> np.ndarray:
    """Multiply all frequencies of samples (T,) int16 by `factor`; (T / factor,) samples remain, at
    least one.

    The spectrum is interpolated to another length, which is resampling without a filter to design.
    """
    length = max(1, round(len(samples) / factor))
    if length == len(samples):
        return samples

    spectrum = np.fft.rfft(samples.astype(np.float64))
    scaled = np.fft.irfft(spectrum, length) * (length / len(samples))
    return np.clip(np.rint(scaled), -32768, 32767).astype(np.int16)


def add_quiet(samples: np.ndarray, before: float, after: float, rate: int) -> np.ndarray:
    """Put seconds of digital silence before and after samples (T,) int16."""
    return np.pad(samples, (round(before * rate), round(after * rate)))


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


def colour(samples: np.ndarray, rate: int, seed: int) -> np.ndarray:
    """Filter samples (T,) int16 as a drawn microphone would; their power stays.

    Gains are interpolated between octaves, over the logarithm of the frequency.
    """
    gains = np.random.default_rng([seed, 1]).normal(0.0, COLOUR, len(OCTAVES))
    spectrum = np.fft.rfft(samples.astype(np.float64))
    hertz = np.maximum(np.arange(len(spectrum)) * rate / len(samples), OCTAVES[0])
    spectrum *= 10 ** (np.interp(np.log2(hertz), np.log2(OCTAVES), gains) / 20)

    coloured = np.fft.irfft(spectrum, len(samples))
    power_before, power_after = np.mean(samples.astype(np.float64) ** 2), np.mean(coloured**2)
    if power_after:
        coloured *= np.sqrt(power_before / power_after)
    return np.clip(np.rint(coloured), -32768, 32767).astype(np.int16)
