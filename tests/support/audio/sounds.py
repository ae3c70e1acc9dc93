"""Sounds in which nobody speaks: silence, noise, music, typing, hum and tones, all synthesised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.support.search.noisy_speech import noise

RATE = 16_000
LEVELS = (-80, -60, -40, -30)
"""dB of full scale of the noises."""
SECONDS = (2.0, 20.0, 60.0)
Sound = Callable[[float], np.ndarray]
"""Returns samples (samples,) from -1 to 1 of so many seconds."""
SCALE = (261.6, 293.7, 329.6, 392.0, 440.0, 523.3)
"""Hz of the notes of a melody."""


def no_speech() -> dict[str, Sound]:
    """Return {name: sound} of all sounds without speech."""
    sounds: dict[str, Sound] = {"silence": silence}
    for level in LEVELS:
        sounds[f"white {level}"] = _noise_of(level, 0.0)
        sounds[f"pink {level}"] = _noise_of(level, 0.5)

    named = (chords, melody, drums, typing, hum, tone, tones)
    return sounds | {sound.__name__: sound for sound in named}


def _noise_of(level: float, tilt: float) -> Sound:
    return lambda seconds: noise(round(seconds * RATE), level, tilt)


def silence(seconds: float) -> np.ndarray:
    """Samples that are all 0."""
    return np.zeros(round(seconds * RATE))


def chords(seconds: float) -> np.ndarray:
    """Four chords of three notes with overtones, a second each, again and again."""
    triads = (
        (261.6, 329.6, 392.0),
        (220.0, 261.6, 329.6),
        (174.6, 220.0, 261.6),
        (196, 246.9, 293.7),
    )
    notes = [np.stack([_note(pitch, 1.0, 1.5) for pitch in triad]) for triad in triads]
    return _in_turns(seconds, 1.0, [note.mean(axis=0) for note in notes])


def melody(seconds: float) -> np.ndarray:
    """Single notes with overtones of 0.1 to 0.5 s, and faint noise."""
    draw = np.random.default_rng(4)
    parts = []
    for _ in range(round(10 * seconds) + 1):
        length = float(draw.choice((0.1, 0.2, 0.3, 0.5)))
        parts.append(_note(float(draw.choice(SCALE)), length, 0.4))
    samples = np.concatenate(parts)[: round(seconds * RATE)]
    return samples + noise(len(samples), -65)


def drums(seconds: float) -> np.ndarray:
    """A low drum and a burst of noise in turns, two a second."""
    times = np.arange(RATE // 2) / RATE
    low = 0.5 * np.sin(2 * np.pi * 60 * times * (1 - times / 2)) * np.exp(-times / 0.1)
    snare = noise(len(times), -14, seed=2) * np.exp(-times / 0.06)
    return _in_turns(seconds, 0.5, [low, snare])


def typing(seconds: float) -> np.ndarray:
    """Clicks of keys at random times, about six a second, over faint noise."""
    draw = np.random.default_rng(5)
    samples = noise(round(seconds * RATE), -65)
    times = np.arange(round(0.03 * RATE)) / RATE
    for place in draw.uniform(0, seconds - 0.05, round(6 * seconds)):
        click = draw.normal(0, draw.uniform(0.05, 0.3), len(times)) * np.exp(-times / 0.004)
        click += 0.05 * np.sin(2 * np.pi * draw.uniform(800, 3000) * times) * np.exp(-times / 0.008)
        first = round(place * RATE)
        samples[first : first + len(click)] += click
    return samples


def hum(seconds: float) -> np.ndarray:
    """Mains hum of 50 Hz with overtones."""
    times = np.arange(round(seconds * RATE)) / RATE
    amplitudes = {50: 0.03, 100: 0.015, 150: 0.01, 250: 0.004}
    waves = [size * np.sin(2 * np.pi * pitch * times) for pitch, size in amplitudes.items()]
    return sum(waves) + noise(len(times), -70)


def tone(seconds: float) -> np.ndarray:
    """A steady tone of 1 kHz."""
    return 0.1 * np.sin(2 * np.pi * 1000 * np.arange(round(seconds * RATE)) / RATE)


def tones(seconds: float) -> np.ndarray:
    """Beeps of 0.2 s at several pitches, each with a pause of 0.3 s."""
    pause = np.zeros(round(0.3 * RATE))
    times = np.arange(round(0.2 * RATE)) / RATE
    beeps = [0.2 * np.sin(2 * np.pi * pitch * times) for pitch in (697, 1209, 852, 1477, 440)]
    return _in_turns(seconds, 0.5, [np.concatenate((beep, pause)) for beep in beeps])


def _note(pitch: float, seconds: float, decay: float) -> np.ndarray:
    """A note with five overtones that fades: its level falls by 1 / e in `decay` seconds."""
    times = np.arange(round(seconds * RATE)) / RATE
    waves = [np.sin(2 * np.pi * pitch * order * times) / order**1.5 for order in range(1, 7)]
    attack = np.minimum(1.0, times / 0.01) * np.minimum(1.0, (seconds - times) / 0.01)
    return 0.2 * sum(waves) * attack * np.exp(-times / decay)


def _in_turns(seconds: float, step: float, parts: list[np.ndarray]) -> np.ndarray:
    """Parts of `step` seconds one after the other, as often as `seconds` needs."""
    turn = np.concatenate([part[: round(step * RATE)] for part in parts])
    return np.tile(turn, 1 + round(seconds * RATE) // len(turn))[: round(seconds * RATE)]
