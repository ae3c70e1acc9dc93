"""Align a hypothesis with its reference by edit distance, and count the errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Pair = tuple[str | None, str | None]
"""(reference word, hypothesis word). A deleted word has no hypothesis (None), an inserted word no
reference (None)."""


@dataclass(frozen=True)
class Counts:
    """Numbers of correct, substituted, deleted and inserted words of an alignment."""

    correct: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Counts:
        """Count the pairs of an alignment."""
        correct = substituted = deleted = inserted = 0
        for reference, hypothesis in pairs:
            if hypothesis is None:
                deleted += 1
            elif reference is None:
                inserted += 1
            elif reference == hypothesis:
                correct += 1
            else:
                substituted += 1

        return cls(correct, substituted, deleted, inserted)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.correct + other.correct,
            self.substituted + other.substituted,
            self.deleted + other.deleted,
            self.inserted + other.inserted,
        )

    @property
    def words(self) -> int:
        """Number of words of the reference."""
        return self.correct + self.substituted + self.deleted

    @property
    def errors(self) -> int:
        """Substituted, deleted and inserted words: the edit distance."""
        return self.substituted + self.deleted + self.inserted

    @property
    def rate(self) -> float:
        """Errors per 100 words of the reference.

        Without words it is 0 if there is no error, and infinite if words were inserted.
        """
        if not self.words:
            return math.inf if self.errors else 0.0
        return 100.0 * self.errors / self.words

    @property
    def rate_text(self) -> str:
        """The rate in percent as reports have it; n/a if it is infinite."""
        return f"{self.rate:.2f}" if math.isfinite(self.rate) else "n/a"

    def __str__(self) -> str:
        """Write the counts in WeNet's format, with n/a for an infinite rate."""
        return (
            f"{self.rate_text} % N={self.words} C={self.correct} "
            f"S={self.substituted} D={self.deleted} I={self.inserted}"
        )


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """Align two word sequences with the fewest substitutions, deletions and insertions.

    Of several best alignments, the result is the one that WeNet reports: walking back from the end,
    a deletion is preferred to an insertion, and an insertion to a pair.

    The algorithm stores only the differences of neighbouring cells of the distance matrix. Each
    difference is one bit; the bits of a column form an integer of len(reference) bits. So a column
    takes a dozen integer operations, independent of its height (Myers 1999, in the form of Hyyrö
    2003).
    """
    if list(reference) == list(hypothesis):
        return list(zip(reference, hypothesis, strict=True))

    rises_down, rises_right = _find_rises(reference, hypothesis)
    pairs: list[Pair] = []
    row, column = len(reference), len(hypothesis)
    while row and column:
        if rises_down[column] >> (row - 1) & 1:
            row -= 1
            pairs.append((reference[row], None))
        elif rises_right[column] >> (row - 1) & 1:
            column -= 1
            pairs.append((None, hypothesis[column]))
        else:
            row, column = row - 1, column - 1
            pairs.append((reference[row], hypothesis[column]))

    # The walk reached the first row or column: what remains has no partner.
    pairs.extend((word, None) for word in reversed(reference[:row]))
    pairs.extend((None, word) for word in reversed(hypothesis[:column]))
    pairs.reverse()
    return pairs


def _find_rises(reference: Sequence[str], hypothesis: Sequence[str]) -> tuple[list[int], list[int]]:
    """Find where the distance matrix D grows by one. D has a row per reference word and a column
    per hypothesis word.

    Returns:
        two lists with an integer per column. Bit r - 1 is set in the first list where D[r, column]
        is D[r - 1, column] + 1, and in the second list where D[r, column] is D[r, column - 1] + 1.
    """
    places: dict[str, int] = {}
    for row, word in enumerate(reference):
        places[word] = places.get(word, 0) | 1 << row

    all_rows = (1 << len(reference)) - 1
    down_plus, down_minus = all_rows, 0
    rises_down, rises_right = [all_rows], [0]

    for word in hypothesis:
        matches = places.get(word, 0)
        diagonal_zero = (((matches & down_plus) + down_plus) ^ down_plus) | matches | down_minus
        right_plus = (down_minus | ~(diagonal_zero | down_plus)) & all_rows
        right_minus = diagonal_zero & down_plus & all_rows
        rises_right.append(right_plus)

        # The top row of the matrix grows by one with every column.
        shifted_plus = right_plus << 1 | 1
        down_plus = (right_minus << 1 | ~(diagonal_zero | shifted_plus)) & all_rows
        down_minus = shifted_plus & diagonal_zero & all_rows
        rises_down.append(down_plus)

    return rises_down, rises_right
