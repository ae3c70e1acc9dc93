"""Speech of a text in any voice of the recipe."""

from __future__ import annotations

import espeak
import heart
import joe
import numpy as np
from voices import Setting, scale_frequencies

NETWORKS = {"joe": joe.speak, "heart": heart.speak}
"""Voices that stand in place of a language of eSpeak NG."""


def speech(text: str, setting: Setting) -> np.ndarray:
    """Synthesise `text` as samples (T,) int16 at espeak.SAMPLE_RATE.

    Raises:
        NoSpeechError: the text cannot be spoken.
        ValueError: there is no such voice.
    """
    speaker, _, _ = setting.voice.partition("+")
    speak = NETWORKS.get(speaker, espeak.speak)
    return scale_frequencies(speak(text, setting.before_scaling), setting.formants)
