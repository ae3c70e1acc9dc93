"""The operator of fsdd that puts quiet around recordings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from examples.fsdd.s0.local.quiet import Quiet
from wenet_uio.dataset.types import Example

RATE = 8000
TONE = torch.from_numpy(10000 * np.sin(0.3 * np.arange(RATE))).float()


def example(seed: int) -> Example:
    return Example("u", "one", TONE, RATE, seed)


def waveform_of(quiet: Quiet, seed: int) -> torch.Tensor:
    waveform = quiet(example(seed)).waveform
    assert waveform is not None
    return waveform


def test_a_draw_depends_on_the_seed_of_the_utterance_alone():
    quiet = Quiet(prob=1.0)
    first, again, other = (waveform_of(quiet, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert len(first) != len(other)


def test_the_words_stay_whole_between_quiet_of_the_level_and_length_asked_for():
    seconds, levels = [], []
    for seed in range(200):
        waveform = waveform_of(Quiet(prob=1.0, longest=0.5, level=(-60.0, -50.0)), seed)
        loud = torch.nonzero(waveform.abs() > 1000).flatten()
        first, last = int(loud[0]), int(loud[-1])
        assert last - first == pytest.approx(RATE, abs=20)
        for part in (waveform[: first - 10], waveform[last + 10 :]):
            if len(part) > 500:
                levels.append(20 * np.log10(float(part.std()) / 32768))
        seconds += [first / RATE, (len(waveform) - last) / RATE]
    assert 0 <= min(seconds) < 0.02 < 0.48 < max(seconds) <= 0.51
    assert -61 < min(levels) < -59 < -51 < max(levels) < -49


def test_some_recordings_stay_as_they_are():
    changed = [waveform_of(Quiet(prob=0.7), seed) is not TONE for seed in range(1000)]
    assert sum(changed) == pytest.approx(700, abs=60)
