"""Speak texts without audio in the worker of the loader.

conf/train_conformer_hybrid.yaml names this operator.

Sources of type tts_text have such texts. Speed, pitch and noise are drawn from the seed of the
sample, which depends on the seed of the run, the epoch and the key. So a text sounds different in
every epoch, and the same after every resume and on any number of workers and ranks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch

from wenet_uio.dataset.types import Example, SkipSample

from .espeak import SAMPLE_RATE, NoSpeechError, speak
from .voices import add_noise, draw_setting, draw_snr, scale_frequencies


@dataclass(frozen=True)
class Speak:
    """Speaks the texts of a source.

    The speaker of a text is a voice of eSpeak NG, such as en-us+m1.
    """

    def __call__(self, example: Example) -> Example:
        """Set the waveform of a text; audio stays as it is.

        Raises:
            SkipSample: the text cannot be spoken.
            ValueError: the text has no speaker, or the speaker is no voice of eSpeak NG.
        """
        if example.to_speak is None:
            return example

        text, voice, _ = example.to_speak
        if voice is None:
            raise ValueError(
                "it has no speaker; give its source speakers_filepath, a file of voices of eSpeak "
                "NG"
            )

        rng = random.Random(f"speak {example.random}")
        setting = draw_setting(voice, rng)
        try:
            samples = speak(text, setting.before_scaling)
        except NoSpeechError as error:
            raise SkipSample("not_spoken", str(error)) from None

        samples = scale_frequencies(samples, setting.formants)
        samples = add_noise(samples, draw_snr(rng), rng.getrandbits(32))
        waveform = torch.from_numpy(samples.astype(np.float32))
        return replace(example, waveform=waveform, sample_rate=SAMPLE_RATE)
