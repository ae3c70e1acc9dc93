"""The gate of a stream passes what somebody says, and nothing else."""

import numpy as np
import pytest
import torch

from wenet_uio.addons.listen.speech_gate import LOOK_BACK, SpeechGate

RATE = 8000


def sound(stretches, noise, seed=0):
    """Samples on the scale of int16: a tone for each (seconds, dB), in noise of `noise` dB."""
    parts = [
        10 ** (level / 20) * np.sqrt(2) * np.sin(0.4 * np.arange(round(seconds * RATE)))
        for seconds, level in stretches
    ]
    samples = np.concatenate(parts)
    samples = samples + np.random.default_rng(seed).normal(0, 10 ** (noise / 20), len(samples))
    return torch.from_numpy(samples * 32768).float()


def passed(samples, packet=700, margin=LOOK_BACK):
    """The samples that a gate passes, and the gate."""
    gate, parts = SpeechGate(RATE, margin), []
    for start in range(0, len(samples), packet):
        parts.append(
            gate.accept(samples[start : start + packet], last=start + packet >= len(samples))
        )
    return torch.cat(parts), gate


@pytest.mark.parametrize("noise", [-90, -70, -50, -40])
@pytest.mark.parametrize("quiet", [0.0, 0.3, 1.0, 5.0, 25.0])
def test_what_is_passed_begins_shortly_before_the_speech(noise, quiet):
    samples = sound([(quiet, -200), (1.0, -25), (1.0, -200)], noise)
    heard, gate = passed(samples)
    start = (len(samples) - len(heard)) / RATE
    assert max(0.0, quiet - LOOK_BACK - 0.05) <= start <= max(0.0, quiet - LOOK_BACK + 0.05)
    assert torch.equal(heard, samples[len(samples) - len(heard) :])
    assert gate.last_speech / RATE == pytest.approx(quiet + 1.0, abs=0.1)


def test_a_model_that_knows_little_quiet_is_given_little():
    samples = sound([(3, -200), (1.0, -25), (1.0, -200)], -70)
    starts = [
        3 - (len(samples) - len(passed(samples, margin=margin)[0])) / RATE
        for margin in (0.0, 0.02, 0.1, 0.2, 1.0)
    ]
    assert starts == pytest.approx([0.1, 0.1, 0.2, LOOK_BACK, LOOK_BACK], abs=0.06)


@pytest.mark.parametrize("noise", [-200, -70, -50, -40])
def test_a_minute_of_quiet_is_held_back(noise):
    heard, gate = passed(sound([(60, -200)], noise))
    assert (len(heard), gate.is_open, gate.dropped) == (0, False, 60 * RATE)


def test_a_click_opens_no_gate_and_a_whole_short_stream_is_passed():
    click = [(3, -200), (0.02, -10), (3, -200)]
    assert not len(passed(sound(click, -70))[0])
    short = sound([(0.4, -50)], -70)
    assert torch.equal(passed(short)[0], short)
    assert not len(SpeechGate(RATE).accept(short[:0], last=True))


@pytest.mark.all
def test_decisions_do_not_depend_on_the_length_of_packets():
    samples = sound([(2.3, -200), (0.7, -30), (1.0, -200)], -55)
    expected = passed(samples)[0]
    for packet in (1, 79, 80, 4000, len(samples)):
        assert torch.equal(passed(samples, packet)[0], expected)


def test_a_closed_gate_opens_again_for_the_next_speech():
    samples = sound([(2, -200), (1, -25), (3, -200), (1, -25), (1, -200)], -60)
    gate = SpeechGate(RATE)
    first = gate.accept(samples[: 5 * RATE])
    assert gate.is_open
    assert len(first) == pytest.approx((3 + LOOK_BACK) * RATE, abs=0.05 * RATE)
    gate.close(4 * RATE)
    assert not gate.is_open
    second = gate.accept(samples[4 * RATE :], last=True)
    assert len(second) == pytest.approx((2 + LOOK_BACK) * RATE, abs=0.05 * RATE)
    assert gate.passed == len(samples)
    assert gate.dropped == len(samples) - len(second) - round(4 * RATE) + gate_start(first)


def gate_start(first):
    """Samples before the first ones that were passed."""
    return 5 * RATE - len(first)
