"""Detectors on real speech with added noise; no recogniser is needed."""

import sys

import numpy as np
import pytest
import soundfile
import torch

from tests.support.search.noisy_speech import noise, overlaps, spread
from wenet_uio.addons.listen import voice_activity
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.speech import MARGIN, find_speech
from wenet_uio.addons.listen.voice_activity import (
    PIECE,
    RATE,
    WINDOW,
    VoiceDetector,
    VoiceStream,
    is_installed,
)

SILERO = pytest.mark.skipif(not is_installed(), reason="silero-vad is not installed")
BOTH = pytest.mark.parametrize("detector", ["energy", pytest.param("silero", marks=SILERO)])
PAUSE = 0.4


def found_segments(tmp_path, samples, rate, detector):
    """The segments in which somebody speaks rather than not."""
    soundfile.write(tmp_path / "a.wav", samples.clip(-1, 1), rate)
    speech = find_speech(str(tmp_path / "a.wav"), 0, PAUSE, detector=detector)
    return [segment for segment, no_speech in speech if no_speech < 0.5]


def digits(corpora, speakers=("jackson", "george"), pause=24.5):
    """Ten digits, each after `pause` seconds."""
    folder = corpora / "fsdd/recordings"
    return spread(
        [folder / f"{digit}_{speakers[digit % len(speakers)]}_0.wav" for digit in range(10)], pause
    )


@pytest.mark.third
@pytest.mark.parametrize(
    ("detector", "level"),
    [
        *(("energy", level) for level in (-70, -58, -54, -48)),
        pytest.param("silero", -48, marks=SILERO),
    ],
)
def test_sparse_words_in_steady_noise_are_found_and_the_noise_is_not(
    corpora, tmp_path, detector, level
):
    # More than one batch
    samples, times, rate = digits(corpora, pause=12.8 if detector == "silero" else 24.5)
    segments = found_segments(tmp_path, samples + noise(len(samples), level), rate, detector)
    assert len(segments) == 10
    assert min(overlaps(segments, times)) > 0.4  # at -48 dB soft ends are below the noise
    spoken = sum(end - start for start, end in times)
    assert sum(end - start - 2 * MARGIN for start, end in segments) < 1.5 * spoken


@pytest.mark.third
@BOTH
@pytest.mark.parametrize("tilt", [0.0, 0.5, 1.0], ids=["white", "pink", "brown"])
def test_noise_alone_is_not_speech(tmp_path, detector, tilt):
    for level in (-70, -48, -30):
        assert found_segments(tmp_path, noise(8000 * 10, level, tilt), 8000, detector) == []


@BOTH
@pytest.mark.parametrize("snr", [20, 10])
def test_sentences_in_noise_are_found_and_pauses_are_not(corpora, tmp_path, detector, snr):
    samples, times, rate = spread(
        sorted((corpora / "speechocean762/WAVE").rglob("*.WAV"))[:80:10], 3.0
    )
    level = 20 * np.log10(np.sqrt(np.mean(samples[samples != 0] ** 2))) - snr
    segments = found_segments(tmp_path, samples + noise(len(samples), level, 0.5), rate, detector)
    assert min(overlaps(segments, times)) > 0.25  # the recordings begin and end with silence
    pauses = list(
        zip([0.0, *(end for _, end in times)], [start for start, _ in times], strict=False)
    )
    assert max(overlaps(segments, pauses)) < 0.1


@BOTH
def test_the_floor_follows_noise_that_becomes_louder(corpora, tmp_path, detector):
    samples, times, rate = digits(corpora, pause=12.0)
    half = len(samples) // 2
    louder = np.concatenate((noise(half, -70), noise(len(samples) - half, -48)))
    segments = found_segments(tmp_path, samples + louder, rate, detector)
    assert min(overlaps(segments, times)) > 0.4
    assert len(segments) <= 11  # the step itself


@SILERO
def test_the_voice_detector_finds_words_within_noise_that_swells(corpora, tmp_path):
    samples, times, rate = digits(corpora, pause=8.0)
    swelling = noise(len(samples), -56) * 10 ** (0.3 * np.sin(np.arange(len(samples)) / rate / 3))
    segments = found_segments(tmp_path, samples + swelling, rate, "silero")
    assert min(overlaps(segments, times)) > 0.4
    assert max(end - start for start, end in segments) < 2.0


@SILERO
def test_the_voice_detector_refuses_loud_sounds_that_are_not_voices(corpora, tmp_path):
    samples, times, rate = digits(corpora, pause=5.0)
    knock = noise(rate // 3, -12) * np.exp(-np.arange(rate // 3) / rate / 0.08)
    for start, _ in times:
        place = round((start - 2.5) * rate)
        samples[place : place + len(knock)] += knock
    samples += noise(len(samples), -60)
    assert len(found_segments(tmp_path, samples, rate, "silero")) == 10
    assert len(found_segments(tmp_path, samples, rate, "energy")) == 20


def bursts():
    """Four seconds of loud noise in twenty."""
    return noise(RATE * 20, -20) * (np.arange(RATE * 20) // RATE % 5 == 2) + noise(RATE * 20, -70)


@pytest.fixture
def without_silero(monkeypatch):
    voice_activity._shared_model.cache_clear()
    monkeypatch.setitem(sys.modules, "silero_vad", None)


@SILERO
def test_auto_is_silero_where_it_is_installed_and_does_not_change_the_threads(tmp_path):
    threads = torch.get_num_threads()
    assert (
        found_segments(tmp_path, bursts(), RATE, "auto")
        == found_segments(tmp_path, bursts(), RATE, "silero")
        == []
    )
    assert torch.get_num_threads() == threads


def test_auto_is_energy_where_silero_is_not_installed(tmp_path, without_silero):
    assert found_segments(tmp_path, bursts(), RATE, "auto") == found_segments(
        tmp_path, bursts(), RATE, "energy"
    )
    assert len(found_segments(tmp_path, bursts(), RATE, "auto")) == 4


def test_without_the_package_silero_is_refused_with_the_command_to_install_it(
    tmp_path, without_silero
):
    with pytest.raises(ValueError, match="detector silero: not installed; pip install silero-vad"):
        Cutting(detector="silero")
    with pytest.raises(
        ModuleNotFoundError, match="silero-vad is not installed: pip install silero-vad"
    ):
        found_segments(tmp_path, bursts(), RATE, "silero")


@BOTH
@pytest.mark.parametrize("seconds", [2, 10])
def test_a_recording_in_which_nobody_speaks_has_no_segment(tmp_path, detector, seconds):
    steady = [noise(8000 * seconds, level, tilt) for level in (-80, -48, -30) for tilt in (0, 0.5)]
    for samples in (*steady, np.zeros(8000 * seconds)):
        soundfile.write(tmp_path / "a.wav", samples, 8000)
        assert find_speech(str(tmp_path / "a.wav"), 0, PAUSE, detector=detector) == []


def loudest_at(samples, level):
    """Samples whose peak is `level` dB of full scale."""
    return samples / np.abs(samples).max() * 10 ** (level / 20)


@pytest.mark.third
@BOTH
@pytest.mark.parametrize("snr", [None, 20, 10])
@pytest.mark.parametrize("level", [-20, -40, -50])
def test_quiet_words_are_not_lost(corpora, tmp_path, detector, level, snr):
    folder = corpora / "fsdd/recordings"
    words = [folder / f"{digit}_{name}_1.wav" for digit in (0, 1, 9) for name in ("george", "theo")]
    sentence = next((corpora / "speechocean762/WAVE").rglob("*.WAV"))
    for path in (*words, sentence):
        samples, rate = soundfile.read(path)
        samples = loudest_at(samples, level)
        if snr is not None:
            power = 10 * np.log10(np.mean(samples**2))
            samples = samples + noise(len(samples), power - snr, 0.5)
        soundfile.write(tmp_path / "a.wav", samples, rate)
        assert find_speech(str(tmp_path / "a.wav"), 0, PAUSE, detector=detector), path.name


@SILERO
def test_a_quiet_recording_has_the_segments_of_its_louder_copy(corpora, tmp_path):
    samples, _, rate = digits(corpora, pause=2.0)
    segments = []
    for level in (-6, -50):
        quieter = loudest_at(samples + noise(len(samples), -60), level)
        soundfile.write(tmp_path / "a.wav", quieter, rate, subtype="FLOAT")
        segments.append(find_speech(str(tmp_path / "a.wav"), 0, PAUSE, detector="silero"))
    assert len(segments[0]) == len(segments[1]) == 10
    for (loud, _), (quiet, _) in zip(*segments, strict=True):
        assert quiet == pytest.approx(loud, abs=0.1)


@BOTH
def test_a_recording_that_is_short_enough_is_not_cut_but_trimmed(corpora, tmp_path, detector):
    samples, times, rate = digits(corpora, pause=2.0)
    soundfile.write(tmp_path / "a.wav", samples + noise(len(samples), -60), rate)
    path, seconds = str(tmp_path / "a.wav"), len(samples) / rate
    ((segment, _),) = find_speech(path, 0, PAUSE, detector=detector, uncut=seconds + 1)
    assert segment.start == pytest.approx(times[0][0], abs=0.35)
    assert segment.end == pytest.approx(times[-1][1], abs=0.35)
    assert len(find_speech(path, 0, PAUSE, detector=detector, uncut=seconds - 1)) == 10

    first, last = segment.start, seconds - segment.end
    for kept in (first - 0.01, first + 0.01, last - 0.01, last + 0.01):
        ((whole, _),) = find_speech(
            path, 0, PAUSE, detector=detector, uncut=seconds + 1, kept_quiet=kept
        )
        assert whole.start == (0.0 if kept >= first else segment.start)
        assert whole.end == (seconds if kept >= last else segment.end)


@pytest.fixture(scope="module")
def nine_seconds(corpora):
    """Samples of digits and silence, and their probabilities, found in one batch."""
    samples, _, rate = digits(corpora, pause=2.0)
    assert rate * 2 == RATE
    samples = (32767 * np.repeat(samples, 2)[: RATE * 9 + 5]).astype(np.float32)
    whole = VoiceDetector(RATE)
    whole.accept(samples)
    return samples, whole.finish()


@pytest.mark.third
@SILERO
@pytest.mark.parametrize("size", [RATE * 7, 12_345, 100])
def test_probabilities_do_not_depend_on_the_blocks_in_which_audio_comes(
    nine_seconds, monkeypatch, size
):
    samples, expected = nine_seconds
    assert len(expected) == -(-len(samples) // WINDOW)
    assert len(expected) > 2 * PIECE
    monkeypatch.setattr(voice_activity, "PIECES", 1)
    blocks, stream = VoiceDetector(RATE), VoiceStream()
    streamed = []
    for start in range(0, len(samples), size):
        blocks.accept(samples[start : start + size])
        streamed.append(stream.accept(samples[start : start + size]))
    np.testing.assert_allclose(blocks.finish(), expected, atol=1e-4)
    streamed = np.concatenate(streamed)
    assert len(streamed) == len(samples) // WINDOW
    np.testing.assert_allclose(streamed, expected[: len(streamed)], atol=1e-3)


@SILERO
def test_a_recording_without_samples_has_no_probabilities():
    assert VoiceDetector(8000).finish().tolist() == []
    assert VoiceStream().accept(np.zeros(0, np.float32)).tolist() == []
