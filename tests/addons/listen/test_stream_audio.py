import numpy as np
import pytest
import torch

from tests.addons.listen.conftest import RATE
from wenet_uio.addons.listen.stream_audio import NEVER_MORE, StreamAudio, StreamResampler
from wenet_uio.dataset.chain.waveform import resample


def parts(samples, seed):
    """Cut samples into parts of random lengths, some of them empty."""
    places = np.sort(np.random.default_rng(seed).integers(0, len(samples), 40))
    return np.split(samples, places)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000])
def test_parts_resample_to_the_samples_of_the_whole(rate):
    whole = torch.from_numpy(
        np.random.default_rng(rate).normal(0, 1000, 2 * rate).astype(np.float32)
    )
    resampler = StreamResampler(rate, RATE)
    found = [resampler.accept(torch.from_numpy(part)) for part in parts(whole.numpy(), rate)]
    assert sum(len(part) for part in found) > 1.8 * RATE  # most of it before the end
    found.append(resampler.accept(torch.zeros(0), last=True))
    expected = resample(whole, rate, RATE) if rate != RATE else whole
    torch.testing.assert_close(torch.cat(found), expected, atol=1e-2, rtol=1e-4)
    empty = StreamResampler(rate, RATE)
    assert len(empty.accept(torch.zeros(0), last=True)) == 0


def test_the_queue_gives_as_much_as_is_asked_for():
    audio = StreamAudio(RATE, RATE)
    assert audio.take(1) is None
    audio.push(np.arange(10 * RATE, dtype=np.float32) / (20 * RATE))
    audio.push(np.zeros(0))
    assert (audio.queued, audio.seconds) == (10 * RATE, 10.0)
    assert len(audio.take(7)) == 7
    assert len(audio.take(RATE)) == RATE
    assert audio.take(9 * RATE) is None
    audio.ended = True
    rest = audio.take(10 * RATE)
    assert len(rest) == 9 * RATE - 7
    assert (audio.empty, audio.queued, audio.take(1)) == (True, 0, None)
    torch.testing.assert_close(rest / 32768, torch.arange(RATE + 7, 10 * RATE) / (20 * RATE))


def test_the_end_of_resampled_samples_comes_with_the_end_of_the_queue():
    audio = StreamAudio(8000, RATE)
    audio.push(np.ones(800, np.int16))
    first = audio.take(800)
    assert len(first) < 1600
    assert not audio.empty
    audio.ended = True
    assert len(first) + len(audio.take(1)) == 1600
    assert audio.empty


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((2, 9)), r"expected one channel \(N,\), found shape \(2, 9\)"),
        (np.zeros((), np.float32), r"found shape \(\)"),
        (np.zeros(9, np.int32), "expected int16, or floats from -1 to 1; found torch.int32"),
        (np.array(["a"]), "expected int16, or floats from -1 to 1; found <U1"),
        (np.array([None]), "found object"),
        (np.full(9, np.inf), "not all are numbers"),
        (torch.full((9,), 1e38), "not all are numbers"),
    ],
)
def test_wrong_samples_are_refused_and_change_nothing(wrong, message):
    audio = StreamAudio(RATE, RATE)
    with pytest.raises(ValueError, match=message):
        audio.push(wrong)
    assert audio.queued == 0
    audio.ended = True
    with pytest.raises(ValueError, match=NEVER_MORE):
        audio.push(np.zeros(9))


def test_lists_and_reversed_arrays_are_samples():
    audio = StreamAudio(RATE, RATE)
    audio.push([0.25, 0.5])
    audio.push(np.array([1, 2, 3], np.int16)[::-1])
    assert audio.take(5).tolist() == [8192, 16384, 3, 2, 1]


@pytest.mark.parametrize("rate", [0, -8000])
def test_a_rate_that_is_not_above_0_is_refused(rate):
    with pytest.raises(ValueError, match=f"sample_rate: expected above 0 Hz, found {rate}"):
        StreamAudio(rate, RATE)
