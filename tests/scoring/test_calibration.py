"""The calibration error against a plain computation."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from wenet_uio.scoring.calibration import (
    BINS,
    JudgedWord,
    calibration,
    judge_words,
    read_confidences,
)
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.words import WordRules

WORDS = WordRules()


def plain_error(words: list[JudgedWord]) -> float:
    """The definition: over the bins, share of the words x |share of right words - mean confidence|."""
    confidences = np.array([word.confidence for word in words])
    right = np.array([word.is_right for word in words], float)
    error = 0.0
    for lower in np.arange(BINS) / BINS:
        inside = (confidences >= lower) & (confidences < lower + 1 / BINS)
        if lower == (BINS - 1) / BINS:
            inside = confidences >= lower
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidences[inside].mean())
    return 100 * error


@pytest.mark.parametrize("seed", range(20))
def test_the_error_equals_a_plain_computation(seed: int) -> None:
    draw = random.Random(seed)
    sure = [draw.choice([draw.random(), 1.0, draw.random() ** 0.1]) for _ in range(1 + 40 * seed)]
    words = [JudgedWord(confidence, draw.random() < confidence**2) for confidence in sure]
    measured = calibration(words)
    assert measured is not None
    assert measured.error == pytest.approx(plain_error(words), abs=1e-9)
    assert measured.words == len(words)
    assert measured.confidence == pytest.approx(100 * np.mean(sure))
    assert measured.right == pytest.approx(100 * np.mean([word.is_right for word in words]))


def test_sure_and_right_is_0_and_sure_and_wrong_is_100() -> None:
    for is_right, error in ((True, 0.0), (False, 100.0)):
        measured = calibration([JudgedWord(1.0, is_right)] * 3)
        assert measured is not None
        assert measured.error == error


def test_without_words_nothing_is_measured() -> None:
    assert calibration([]) is None


def test_a_word_is_right_if_the_alignment_pairs_it_with_the_same_word() -> None:
    hypothesis = [("The", 0.9), ("big", 0.4), ("dog", 0.8), ("ran", None)]
    found = judge_words({"a": "the dog sat"}, {"a": hypothesis}, WORDS)
    assert found == [(0.9, True), (0.4, False), (0.8, True)]


def test_units_of_a_word_have_its_confidence_and_tags_are_no_words() -> None:
    hypothesis = [("我们", 0.5), ("<noise>", 0.1), ("ok", 0.7)]
    found = judge_words({"a": "我 你 ok"}, {"a": hypothesis}, WordRules("auto"))
    assert found == [(0.5, True), (0.5, False), (0.7, True)]


def test_utterances_without_reference_or_without_words_are_left_out() -> None:
    assert judge_words({"a": "one"}, {"b": [("one", 0.5)], "a": []}, WORDS) == []


@pytest.mark.parametrize("seed", range(10))
def test_as_many_words_are_right_as_scoring_counts(seed: int) -> None:
    draw = random.Random(seed)
    references = {str(key): " ".join(draw.choices("abcd", k=draw.randrange(8))) for key in range(9)}
    said = {key: draw.choices("abcd", k=draw.randrange(8)) for key in references}
    confidences = {key: [(word, draw.random()) for word in words] for key, words in said.items()}
    scores = score(references, {key: " ".join(words) for key, words in said.items()}, WORDS)
    judged = judge_words(references, confidences, WORDS)
    assert sum(word.is_right for word in judged) == scores.overall.correct
    assert len(judged) == sum(map(len, said.values()))


def test_the_words_of_the_best_hypotheses_are_read(tmp_path: Path) -> None:
    words = [{"word": "one", "confidence": 0.5}, {"word": "two", "confidence": None}]
    best, other = {"text": "one two", "words": words}, {"text": "won", "words": []}
    lines = [{"key": "a", "hypotheses": [best, other]}, {"key": "b", "hypotheses": [{"text": ""}]}]
    path = tmp_path / "nbest.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_confidences(path) == {"a": [("one", 0.5), ("two", None)]}
