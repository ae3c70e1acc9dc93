import itertools

import numpy as np
import pytest
import soundfile

from wenet_uio.addons.listen.speech import (
    LEAST_MARGIN,
    MOST_MARGIN,
    USUAL_MARGINS,
    Margins,
    Segment,
    channel_levels,
    cut_windows,
    find_speech,
    speech_segments,
)
from wenet_uio.audio.read import AudioReader

RATE = 8000


HARDLY = Margins(0.01, 0.01)
"""Segments that end where the speech ends."""


def recording(path, stretches, noise=0.0005):
    """Write a sequence of tones (seconds, level) with noise."""
    random = np.random.default_rng(0)
    parts = [level * np.sin(0.4 * np.arange(round(seconds * RATE))) for seconds, level in stretches]
    samples = np.concatenate(parts)
    soundfile.write(path, samples + random.normal(0, noise, len(samples)), RATE)
    return str(path)


def cut(path, pause=0.3, margins=HARDLY):
    return [
        (round(start, 2), round(end, 2))
        for start, end in speech_segments(channel_levels(path)[0], pause, margins=margins)
    ]


def test_speech_is_cut_at_pauses_and_keeps_a_margin(tmp_path):
    path = recording(
        tmp_path / "a.wav", [(1, 0), (2, 0.2), (0.5, 0), (1, 0.1), (0.2, 0), (1, 0.3), (2, 0)]
    )
    assert cut(path) == [(0.99, 3.01), (3.49, 5.71)]  # the pause of 0.2 s is too short
    assert cut(path, pause=0.1) == [(0.99, 3.01), (3.49, 4.51), (4.69, 5.71)]


def test_soft_edges_belong_to_the_speech(tmp_path):
    soft = 0.002  # between noise and the threshold of speech
    path = recording(
        tmp_path / "a.wav",
        [(1, 0), (0.1, soft), (1, 0.2), (0.4, soft), (1, 0.2), (1, soft), (1, 0)],
    )
    assert cut(path) == [(0.99, 2.26), (2.34, 3.66)]  # of the longest, 0.15 s


@pytest.mark.parametrize("quiet", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("margins", [Margins(0.0, 0.0), Margins(0.02, 0.02), USUAL_MARGINS])
def test_the_soft_ends_of_words_that_are_cut_close_are_kept_and_steady_quiet_is_not(
    tmp_path, quiet, margins
):
    rise = [(0.01, 0.0001 * 1.9**step) for step in range(10)]
    words = [*rise, (0.3, 0.2), (0.1, 0.01), (0.3, 0.2), *rise[::-1]]
    path = recording(tmp_path / "a.wav", [(quiet, 0), *words, (quiet, 0)], noise=0.0)
    ((start, end),) = cut(path, margins=margins)
    kept = min(quiet, margins.before)
    assert start == pytest.approx(quiet - kept, abs=0.035)
    assert end == pytest.approx(quiet + 0.9 + kept, abs=0.035)


def test_long_segments_are_cut_at_their_longest_pauses(tmp_path):
    path = recording(
        tmp_path / "a.wav",
        [(1, 0), (2, 0.2), (0.2, 0), (1, 0.2), (0.12, 0), (1, 0.2), (0.05, 0), (4, 0.2)],
    )

    def starts(longest):
        segments = speech_segments(channel_levels(path)[0], 0.3, longest, margins=HARDLY)
        return [round(segment.start + HARDLY.before, 1) for segment in segments]

    assert starts(10.0) == [1.0]
    assert starts(7.0) == [1.0, 3.2]
    assert starts(2.0) == [1.0, 3.2, 4.3]  # the pause of 0.05 s is within a word


@pytest.mark.parametrize("rate", [11025, 22050, 44100])
def test_times_do_not_depend_on_the_sample_rate(tmp_path, rate):
    samples = np.random.default_rng(0).normal(0, 0.0005, 95 * rate)
    samples[90 * rate : 92 * rate] += 0.2 * np.sin(0.4 * np.arange(2 * rate))
    soundfile.write(tmp_path / "a.wav", samples, rate)
    assert len(channel_levels(str(tmp_path / "a.wav"))[0]) == 9500
    assert cut(str(tmp_path / "a.wav")) == [(89.99, 92.01)]
    edges = [number * rate // 100 for number in (2, 3, 4, 5)]
    for length in (edge + more for edge in edges for more in range(-3, 4)):
        soundfile.write(tmp_path / "a.wav", samples[:length], rate)
        assert len(channel_levels(str(tmp_path / "a.wav"))[0]) == np.ceil(length * 100 / rate)


def test_the_threshold_follows_noise_and_loudness_from_block_to_block(tmp_path):
    loud = [(28, 0), (1, 0.5), (1, 0)]
    quiet = [(10, 0), (1, 0.02), (19, 0)]
    assert cut(recording(tmp_path / "a.wav", [*loud, *quiet])) == [(27.99, 29.01), (39.99, 41.01)]


def test_clicks_and_silence_are_not_speech(tmp_path):
    assert cut(recording(tmp_path / "a.wav", [(3, 0), (0.02, 0.5), (3, 0)])) == []
    assert cut(recording(tmp_path / "b.wav", [(3, 0)])) == []
    assert cut(recording(tmp_path / "c.wav", [(3, 0.0)], noise=0.0)) == []


def test_speech_without_a_pause_is_one_segment_and_a_steady_sound_is_none(tmp_path):
    syllables = [(0.15, 0.2), (0.05, 0.002)] * 200
    ((start, end),) = cut(recording(tmp_path / "a.wav", syllables))
    assert start == 0.0
    assert end == pytest.approx(40.0, abs=0.1)
    assert cut(recording(tmp_path / "b.wav", [(40, 0.2)])) == []


def test_a_recording_too_short_for_a_pause_is_all_speech(tmp_path):
    assert cut(recording(tmp_path / "a.wav", [(0.5, 0.2)])) == [(0.0, 0.5)]
    assert cut(recording(tmp_path / "b.wav", [(0.5, 0)])) == []


def test_levels_are_those_of_the_signal_and_audio_is_read_in_blocks(tmp_path, monkeypatch):
    path = recording(tmp_path / "a.wav", [(70, 0.5)], noise=0.0)
    asked, read = [], AudioReader.read

    def counted(reader, start, end, channel):
        asked.append(end - start)
        return read(reader, start, end, channel)

    monkeypatch.setattr(AudioReader, "read", counted)
    (levels,) = channel_levels(path)
    assert asked == [30, 30, 10]
    assert levels.shape == (7000,)
    assert levels == pytest.approx(20 * np.log10(0.5 / 2**0.5), abs=0.5)


@pytest.mark.parametrize("seconds", [0.01, 3.9, 4, 19.9, 20, 20.01, 36, 37, 600])
def test_windows_cover_a_segment_and_overlap(seconds):
    found = list(cut_windows(Segment(5.0, 5.0 + seconds), 20.0, 4.0))
    assert found[0].start == 5.0
    assert found[-1].end == 5.0 + seconds
    assert max(end - start for start, end in found) <= 20.0 + 1e-6
    for one, two in itertools.pairwise(found):
        assert one.end - two.start == pytest.approx(4.0)
    assert len(found) == max(1, int(np.ceil((seconds - 4) / 16)))


@pytest.mark.parametrize("level", [0.0, 0.0001, 0.001])
@pytest.mark.parametrize("margins", [Margins(0.02, 0.3), Margins(0.5, 0.05), Margins(1.0, 1.0)])
def test_each_end_keeps_the_quiet_that_the_model_knows(tmp_path, margins, level):
    for before, behind in ((0.0, 0.0), (0.1, 3.0), (3.0, 0.1), (3.0, 3.0)):
        path = recording(tmp_path / "a.wav", [(before, 0), (1, 0.2), (behind, 0)], noise=level)
        for uncut in (0.0, 20.0):
            ((segment, _),) = find_speech(
                path, 0, 0.3, detector="energy", uncut=uncut, margins=margins
            )
            kept = before - segment.start, segment.end - before - 1
            assert kept[0] == pytest.approx(min(before, margins.before), abs=0.035)
            assert kept[1] == pytest.approx(min(behind, margins.behind), abs=0.035)


def test_margins_are_neither_less_than_an_edge_is_known_nor_without_end():
    assert Margins.of(0.0, 0.3) == (LEAST_MARGIN, 0.3)
    assert Margins.of(0.5, 7.0) == (0.5, MOST_MARGIN)
