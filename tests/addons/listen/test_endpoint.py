import numpy as np
import pytest

from wenet_uio.addons.listen.endpoint import WENET_RULES, Endpointer, EndpointRule, silent_by_blank

STEP = 0.04
"""Seconds of an encoder frame: 25 frames a second."""
SPEECH, PAUSE = [False], [True]


def in_chunks(size, silent, has_words, rules=WENET_RULES):
    """(frames before the end, rule) of each end."""
    endpointer = Endpointer(STEP, rules)
    rules_met = [
        (
            min(start + size, len(silent)),
            endpointer.accept(np.array(silent[start : start + size]), has_words),
        )
        for start in range(0, len(silent), size)
    ]
    return [(frame, rule) for frame, rule in rules_met if rule]


@pytest.mark.parametrize("size", [1, 4, 5, 25])
def test_an_utterance_ends_with_the_chunk_in_which_a_second_of_silence_follows_words(size):
    assert in_chunks(size, SPEECH * 30 + PAUSE * 24 + SPEECH + PAUSE * 24, True) == []
    expected = -(-55 // size) * size
    assert in_chunks(size, SPEECH * 30 + PAUSE * 45, True) == [(expected, "rule2")]


@pytest.mark.parametrize("size", [1, 5, 25])
def test_an_utterance_without_words_ends_after_five_seconds_of_silence(size):
    assert in_chunks(size, SPEECH * 30 + PAUSE * 124, False) == []
    assert in_chunks(size, PAUSE * 260, False) == [(125, "rule1"), (250, "rule1")]


@pytest.mark.parametrize("has_words", [True, False])
def test_an_utterance_ends_after_twenty_seconds_even_without_a_pause(has_words):
    assert in_chunks(20, SPEECH * 1001, has_words) == [(500, "rule3"), (1000, "rule3")]


def test_a_chunk_that_has_the_next_word_does_not_end_the_utterance():
    endpointer = Endpointer(STEP)
    assert endpointer.accept(np.array(PAUSE * 30), has_words=False) is None
    # The pause was before it
    assert endpointer.accept(np.array(PAUSE * 8 + SPEECH), has_words=True) is None
    assert endpointer.accept(np.array(PAUSE * 24), has_words=True) is None
    assert endpointer.accept(np.array(PAUSE), has_words=True) == "rule2"


def test_the_silence_after_an_end_belongs_to_the_next_utterance():
    endpointer = Endpointer(STEP)
    assert endpointer.accept(np.array(PAUSE * 60), has_words=True) == "rule2"
    assert endpointer.accept(np.array(PAUSE * 120), has_words=False) is None
    assert endpointer.accept(np.array(PAUSE * 5), has_words=False) == "rule1"


def test_no_frames_end_nothing_and_no_rules_never_do():
    assert Endpointer(STEP).accept(np.zeros(0, bool), has_words=True) is None
    assert in_chunks(1000, PAUSE * 10_000, True, rules={}) == []


def test_rules_are_options():
    rules = {**WENET_RULES, "rule2": EndpointRule(needs_words=True, silence=0.5, length=2.0)}
    assert in_chunks(10, SPEECH * 10 + PAUSE * 50, True, rules) == [(50, "rule2")]  # not before 2 s
    assert in_chunks(16, PAUSE * 13, True, {"short": EndpointRule(True, 0.5)}) == [(13, "short")]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"silence": -1.0}, "silence: expected 0 or more seconds, found -1.0"),
        ({"silence": 1.0, "length": float("nan")}, "length: expected 0 or more seconds, found nan"),
        ({"silence": 0.0}, "both 0: every frame would end an utterance"),
    ],
)
def test_wrong_rules_are_refused_by_name(bad, message):
    with pytest.raises(ValueError, match=message):
        EndpointRule(needs_words=False, **bad)


def test_a_step_of_no_time_is_refused():
    with pytest.raises(ValueError, match="step: expected above 0 seconds, found 0"):
        Endpointer(0)


def test_frames_with_a_likely_blank_are_silent():
    probabilities = np.array([[0.9, 0.1], [0.79, 0.21], [0.1, 0.9]])
    assert silent_by_blank(np.log(probabilities)).tolist() == [True, False, False]
    assert silent_by_blank(np.log(probabilities), blank=1).tolist() == [False, False, True]
