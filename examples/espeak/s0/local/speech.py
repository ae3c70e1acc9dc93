"""Speech of a text in any voice of the recipe."""

from __future__ import annotations

import numpy as np
from espeak import speak as speak_by_espeak
from piper import speak as speak_by_piper
from voices import JOE, Setting, scale_frequencies


def speech(text: str, setting: Setting) -> np.ndarray:
    """Synthesise `text` as samples (T,) int16 at espeak.SAMPLE_RATE.

    Raises:
        NoSpeechError: the text cannot be spoken.
        ValueError: there is no such voice.
    """
    speak = speak_by_piper if setting.voice.startswith(f"{JOE}+") else speak_by_espeak
    return scale_frequencies(speak(text, setting.before_scaling), setting.formants)
