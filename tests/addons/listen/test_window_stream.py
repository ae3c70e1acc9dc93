"""Streams of models that need the whole context."""

import random
import sys

import numpy as np
import pytest

import wenet_uio
from tests.addons.listen.conftest import RATE, write_model
from tests.addons.listen.test_live import events_of, finals, run
from tests.addons.listen.tone_model import tones, write_tone_model
from tests.support.search.noisy_speech import noise, spread
from wenet_uio.addons.listen.endpoint import WENET_RULES
from wenet_uio.addons.listen.live import Partial
from wenet_uio.addons.listen.voice_activity import is_installed
from wenet_uio.addons.listen.window_stream import WindowStream

WHOLE = {"use_dynamic_chunk": False, "causal": False}
FAST = {"mode": "ctc_greedy_search", "detector": "energy"}
"""Where a test is about windows and not about the search."""


@pytest.fixture(scope="module")
def hears_tones(tmp_path_factory):
    folder = write_tone_model(tmp_path_factory.mktemp("tones") / "model", **WHOLE)
    return wenet_uio.load_model(folder, device="cpu")


@pytest.fixture
def no_silero(monkeypatch):
    monkeypatch.setitem(sys.modules, "silero_vad", None)


def test_utterances_end_after_what_follows_the_last_token_without_a_detector(
    hears_tones, no_silero
):
    events = events_of(hears_tones.live(), tones("1ab2c7dd"))
    found = finals(events)
    assert [(each.texts[0], each.rule) for each in found] == [
        ("ab", "rule2"),
        ("c", "rule2"),
        ("", "rule1"),
        ("dd", "end"),
    ]
    segments = [each.segment for each in found]
    assert (segments[0].start, segments[-1].end) == (0, pytest.approx(12.0))
    assert [each.end for each in segments[:-1]] == [each.start for each in segments[1:]]
    times = [token.time for each in segments for token in each.tokens]
    assert times == pytest.approx([1.15, 1.55, 3.95, 11.35, 11.75], abs=0.2)
    assert sum(isinstance(event, Partial) for event in events) >= 4


def test_a_long_utterance_is_joined_from_windows_and_ends_all_the_same(hears_tones, no_silero):
    text = "abcdabdcab"
    found = finals(
        events_of(hears_tones.live(window=2.0, overlap=0.8, **FAST), tones(text + "2" + text + "1"))
    )
    assert [each.texts[0] for each in found if each.texts[0]] == [text, text]
    assert found[1].segment.start == pytest.approx(5.5, abs=0.6)
    once = finals(
        events_of(
            hears_tones.live(window=2.0, overlap=0.8, endpoints={}, **FAST),
            tones(text + "1" + text),
        )
    )
    assert [each.texts[0] for each in once] == [f"{text} {text}"]


def test_windows_of_several_streams_are_decoded_together(hears_tones, no_silero):
    draw = random.Random(2)
    inputs = [
        tones("1" + "".join(draw.choices("abcd23", k=8)) + "1", seed=number) for number in range(4)
    ]
    expected = [
        [each.segment.text for each in finals(events_of(hears_tones.live(**FAST), samples))]
        for samples in inputs
    ]
    assert len(set(map(tuple, expected))) == 4
    events = run([hears_tones.live(**FAST) for _ in inputs], inputs, draw)
    assert [[each.segment.text for each in finals(one)] for one in events] == expected


@pytest.mark.parametrize("endpoints", [{}, WENET_RULES])
def test_a_stream_may_end_with_a_full_window(hears_tones, no_silero, endpoints):
    samples = tones("1abcd")[: 2 * RATE]
    stream = hears_tones.live(window=2.0, endpoints=endpoints)
    assert [each.texts[0] for each in finals(events_of(stream, samples, packet=len(samples)))] == [
        "abc"
    ]


def test_samples_that_arrive_at_once_have_the_text_of_those_that_arrive_slowly(
    hears_tones, no_silero
):
    samples = tones("1abc2dcb2a1")
    for endpoints in ({}, WENET_RULES):
        options = {"endpoints": endpoints, "window": 3.0, **FAST}
        slow = finals(events_of(hears_tones.live(**options), samples))
        fast = finals(events_of(hears_tones.live(**options), samples, packet=len(samples)))
        assert [each.texts for each in slow] == [each.texts for each in fast]


@pytest.mark.skipif(not is_installed(), reason="silero-vad is not installed")
def test_a_voice_detector_finds_the_pauses_of_speech_in_noise(corpora, tmp_path):
    """The model has random weights: it has words always, and the detector alone knows where the
    pauses are.
    """
    recogniser = wenet_uio.load_model(write_model(tmp_path / "model", **WHOLE), device="cpu")
    folder = corpora / "fsdd/recordings"
    samples, times, rate = spread([folder / f"{digit}_jackson_0.wav" for digit in range(1, 5)], 2.0)
    samples = (samples + noise(len(samples), -54)).astype(np.float32)
    stream = recogniser.live(sample_rate=rate, **FAST)
    assert isinstance(stream, WindowStream)
    found = finals(events_of(stream, samples))
    ends = [each.segment.end for each in found if each.rule == "rule2"]
    for start, end in times:  # every digit is in one utterance, and its pause ends it
        assert not [at for at in ends if start < at < end + 0.9]
        assert [at for at in ends if end + 0.9 < at < end + 2.0]
