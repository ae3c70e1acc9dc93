"""Calibration: whether words with a confidence of 0.8 are right in 80 % of the cases.

M. P. Naeini, G. Cooper and M. Hauskrecht, "Obtaining well calibrated probabilities using Bayesian
binning", AAAI 2015, have the expected calibration error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wenet_uio.scoring.wer import align

BINS = 10
"""Intervals of equal width from 0 to 1, into which the confidences are sorted."""

Confidences = Mapping[str, Sequence[tuple[str, float | None]]]
"""{key: words of the hypothesis with their confidences; None: not known}."""


class JudgedWord(NamedTuple):
    """A word of a hypothesis, compared with the reference."""

    confidence: float
    is_right: bool


@dataclass(frozen=True)
class Calibration:
    """How far confidences are from the shares of right words."""

    words: int
    """Words with a confidence."""
    confidence: float
    """Mean of the confidences, in %."""
    right: float
    """Share of the words that are right, in %."""
    error: float
    """Expected calibration error in %: the mean over the words of the difference, in the bin of the
    word, between the mean confidence and the share of right words."""

    def __str__(self) -> str:
        return (
            f"{self.error:.2f} % N={self.words} confidence={self.confidence:.2f} "
            f"right={self.right:.2f}"
        )


def judge_words(
    references: Mapping[str, str], confidences: Confidences, rules: Callable[[str], list[str]]
) -> list[JudgedWord]:
    """Judge the words of hypotheses by their alignment with the references of the same keys.

    Words without a confidence, and utterances that are in one of both only, are left out.

    Args:
        rules: cut a text into the units that are compared, such as WordRules. A unit has the
            confidence of the word that it is part of.
    """
    judged: list[JudgedWord] = []
    for key, words in confidences.items():
        if key not in references:
            continue

        units = [(unit, confidence) for word, confidence in words for unit in rules(word)]
        pairs = align(rules(references[key]), [unit for unit, _ in units])
        is_right = [
            reference == hypothesis for reference, hypothesis in pairs if hypothesis is not None
        ]
        for (_, confidence), right in zip(units, is_right, strict=True):
            if confidence is not None:
                judged.append(JudgedWord(confidence, right))

    return judged


def calibration(judged: Iterable[JudgedWord]) -> Calibration | None:
    """Return the calibration of words; None without words."""
    bins: dict[int, list[JudgedWord]] = {}
    for word in judged:
        number = min(int(word.confidence * BINS), BINS - 1)
        bins.setdefault(number, []).append(word)

    words = [word for members in bins.values() for word in members]
    if not words:
        return None

    gaps = [
        abs(sum(word.confidence - word.is_right for word in members)) for members in bins.values()
    ]
    return Calibration(
        words=len(words),
        confidence=100 * sum(word.confidence for word in words) / len(words),
        right=100 * sum(word.is_right for word in words) / len(words),
        error=100 * sum(gaps) / len(words),
    )


def read_confidences(path: str | Path) -> Confidences:
    """Read the words of the best hypotheses in an nbest.jsonl; utterances without `words` are left
    out.
    """
    confidences: dict[str, list[tuple[str, float | None]]] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            best = record["hypotheses"][0]
            if "words" in best:
                confidences[record["key"]] = [
                    (word["word"], word["confidence"]) for word in best["words"]
                ]

    return confidences
