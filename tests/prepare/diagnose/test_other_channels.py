"""Sound on a channel that training does not read is found; the same sound at any gain is not."""

import numpy as np
import pytest
import soundfile

from wenet_uio.dataset.types import AudioUtterance
from wenet_uio.prepare.diagnose.check_samples import other_sound

RATE = 8000
SECOND = np.random.default_rng(0).normal(0, 0.1, RATE)
QUIET = np.random.default_rng(1).normal(0, 1e-4, RATE)


def utterance(folder, *channels, start=0.0, end=None):
    soundfile.write(folder / "a.wav", np.stack(channels, axis=1), RATE, subtype="FLOAT")
    return AudioUtterance("a", "x", str(folder / "a.wav"), start, end)


def turns(*sounds):
    """A channel that speaks in the seconds whose letter is not a dot."""
    return np.concatenate([QUIET if sound == "." else SECOND for sound in "".join(sounds)])


@pytest.mark.parametrize("channel", [0, 1])
def test_the_second_speaker_of_a_call_is_found_on_either_channel(tmp_path, channel):
    lost = other_sound(utterance(tmp_path, turns("x..x"), turns(".xx.")), channel)
    assert lost == (
        f"channel {channel} is read; channel {1 - channel} sounds for 2.0 s in which it is quiet"
    )


@pytest.mark.parametrize("gain", [0.03, 0.1, 1.0, -1.0, 5.0])
@pytest.mark.parametrize("delay", [0, 80])
def test_one_sound_on_two_channels_is_not_found_at_any_gain(tmp_path, gain, delay):
    sound = turns("x.x.")
    pair = utterance(tmp_path, sound, gain * np.roll(sound, delay))
    assert [other_sound(pair, channel) for channel in (0, 1)] == [None, None]


def test_all_sound_on_another_channel_is_found(tmp_path):
    assert other_sound(utterance(tmp_path, 0 * SECOND, SECOND), 0) is not None


def test_only_the_segment_counts(tmp_path):
    channels = turns("xx.."), turns("..xx")
    assert other_sound(utterance(tmp_path, *channels, start=0, end=2), 0) is None
    assert other_sound(utterance(tmp_path, *channels, start=1, end=3), 0) is not None


def test_a_click_a_mix_and_one_channel_are_not_found(tmp_path):
    click = turns("..")
    click[100:900] = SECOND[:800]
    assert other_sound(utterance(tmp_path, turns(".x"), click), 0) is None
    assert other_sound(utterance(tmp_path, turns("x."), turns(".x")), "mix") is None
    assert other_sound(utterance(tmp_path, turns("x.")), 0) is None


def test_every_further_channel_with_sound_is_named(tmp_path):
    six = [turns("x..."), turns(".x.."), *[turns("....")] * 3, turns("...x")]
    lost = other_sound(utterance(tmp_path, *six), 0)
    assert lost is not None
    assert "channel 1 sounds for 1.0 s" in lost
    assert "channel 5 sounds for 1.0 s" in lost
    assert "channel 3" not in lost
