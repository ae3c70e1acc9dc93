"""A stream shows words when a voice was heard in its utterance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.audio.sounds import RATE, chords
from tests.support.serve.trained_digits import voice
from wenet_uio.addons.listen.voice_activity import is_installed
from wenet_uio.addons.listen.voice_check import VoiceCheck

STEP = RATE // 2


@pytest.mark.skipif(not is_installed(), reason="silero-vad is not installed")
def test_a_voice_after_music_is_heard_in_the_step_in_which_it_comes_and_once(
    corpora: Path,
) -> None:
    word = voice(corpora / "fsdd/recordings", 4, np.random.default_rng(2))
    word = 0.5 * word / np.abs(word).max()
    samples = torch.from_numpy(32767 * np.concatenate((chords(2.0), word))).float()
    check = VoiceCheck(RATE, "silero")
    heard = []
    for start in range(0, len(samples), STEP):
        check.accept(samples[start : start + STEP])
        heard.append(check.has_voice())
    assert heard == [False] * 4 + [True] * (len(heard) - 4)
    assert check.has_voice()

    check.restart()
    assert not check.has_voice()
    check.accept(samples[:STEP])
    assert not check.has_voice()


def test_without_a_detector_of_voices_the_gate_has_decided() -> None:
    check = VoiceCheck(RATE, "energy")
    check.accept(torch.zeros(STEP))
    assert check.has_voice()
