"""Estimate an n-gram language model by interpolated modified Kneser-Ney smoothing, and write it as
ARPA.

Chen and Goodman 1998, "An empirical study of smoothing techniques for language modeling", section 3.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wenet_uio.base.files import written_aside

START, END, UNKNOWN = "<s>", "</s>", "<unk>"
NEVER = -99.0
"""Logarithm that ARPA files give <s>, which is never predicted."""
USUAL_DISCOUNTS = {1: 0.5, 2: 1.0, 3: 1.5}
"""{count: discount} of an order with too few n-grams to estimate them; 3 is 3 and more."""
MOST_ORDER = 6
"""Largest order that the package kenlm reads."""
ARPA_HEAD = "\\data\\"
"""First line of an ARPA file."""

Ngram = tuple[str, ...]
LmUnit = Literal["token", "word"]
"""Units of a language model: tokens of the recogniser, or words."""


@dataclass(frozen=True)
class NgramModel:
    """Probabilities of units after the units before them."""

    probabilities: Sequence[dict[Ngram, float]]
    """Of each order: {n-gram: probability of its last unit after the others}."""
    backoffs: Sequence[dict[Ngram, float]]
    """Of each order: {n-gram: factor of the shorter context's probability if a unit was not seen
    after it}."""

    def probability(self, context: Ngram, unit: str) -> float:
        """Return the probability of `unit` after `context`, of any length."""
        context = context[max(0, len(context) + 1 - len(self.probabilities)) :]
        known = self.probabilities[len(context)].get((*context, unit))
        if known is not None:
            return known
        if not context:
            return self.probabilities[0][(UNKNOWN,)]

        backoff = self.backoffs[len(context) - 1].get(context, 1.0)
        return backoff * self.probability(context[1:], unit)


def estimate(sentences: Iterable[Sequence[str]], order: int) -> NgramModel:
    """Estimate a model of n-grams of up to `order` units.

    Raises:
        ValueError: there is no sentence, or a unit has the name of a mark.
    """
    counts = _count_ngrams(sentences, order)
    vocabulary = {unit for (unit,) in counts[0]} | {END, UNKNOWN}
    vocabulary.discard(START)

    probabilities: list[dict[Ngram, float]] = []
    backoffs: list[dict[Ngram, float]] = []
    for length, ngram_counts in enumerate(counts, start=1):
        shares, left_over = _discount_shares(ngram_counts)
        estimates: dict[Ngram, float] = {}
        if length == 1:
            # What the discounts leave is the same for every unit.
            rest = left_over[()] / len(vocabulary)
            for unit in vocabulary:
                estimates[(unit,)] = shares.get((unit,), 0.0) + rest
        else:
            # What the discounts leave after a context is given out as after the shorter context.
            backoffs.append(left_over)
            shorter = probabilities[-1]
            for ngram, share in shares.items():
                estimates[ngram] = share + left_over[ngram[:-1]] * shorter[ngram[1:]]
        probabilities.append(estimates)

    return NgramModel(probabilities, backoffs)


def _count_ngrams(sentences: Iterable[Sequence[str]], order: int) -> list[dict[Ngram, int]]:
    """Return of each order {n-gram: count}.

    The count of the highest order, and of n-grams that begin a sentence, is how often they occur;
    that of the others is the number of units that they occur after.
    """
    occurrences = _count_occurrences(sentences, order)
    counts: list[dict[Ngram, int]] = []
    for counter, longer in itertools.pairwise(occurrences):
        # Each longer n-gram is one unit before the n-gram that it ends with.
        counts_of_units_before = Counter(ngram[1:] for ngram in longer)
        order_counts: dict[Ngram, int] = {}
        for ngram, count in counter.items():
            begins_sentence = ngram[0] == START
            order_counts[ngram] = count if begins_sentence else counts_of_units_before[ngram]
        counts.append(order_counts)

    counts.append(dict(occurrences[-1]))
    del counts[0][(START,)]  # it is never predicted
    return counts


def _count_occurrences(sentences: Iterable[Sequence[str]], order: int) -> list[Counter[Ngram]]:
    """Return of each order {n-gram: how often it occurs}."""
    occurrences: list[Counter[Ngram]] = [Counter() for _ in range(order)]
    for sentence in sentences:
        marks = {START, END, UNKNOWN}.intersection(sentence)
        if marks:
            raise ValueError(
                f"{sorted(marks)[0]} is a mark of language models; remove it from the text "
                f"{' '.join(sentence)!r}"
            )
        units = (START, *sentence, END)
        for length, counter in enumerate(occurrences, start=1):
            firsts = range(len(units) - length + 1)
            counter.update(units[first : first + length] for first in firsts)

    if not occurrences[0]:
        raise ValueError("no sentence to estimate a language model from")

    return occurrences


def _discount_shares(
    counts: dict[Ngram, int],
) -> tuple[dict[Ngram, float], dict[Ngram, float]]:
    """Return {n-gram: its share after the discount}, and {context: what the discounts leave}.

    Both are shares of the counts of all n-grams with the same context, which is an n-gram without
    its last unit.
    """
    discounts = _estimate_discounts(Counter(counts.values()))
    totals: defaultdict[Ngram, int] = defaultdict(int)
    taken: defaultdict[Ngram, float] = defaultdict(float)
    for ngram, count in counts.items():
        totals[ngram[:-1]] += count
        taken[ngram[:-1]] += discounts[min(count, 3)]

    shares: dict[Ngram, float] = {}
    for ngram, count in counts.items():
        shares[ngram] = (count - discounts[min(count, 3)]) / totals[ngram[:-1]]
    left_over = {context: taken[context] / total for context, total in totals.items()}
    return shares, left_over


def _estimate_discounts(numbers: Counter[int]) -> dict[int, float]:
    """Return what is taken from counts of 1, of 2, and of 3 and more.

    Args:
        numbers: {count: number of n-grams with it}.
    """
    if not all(numbers[count] for count in (1, 2, 3, 4)):
        return USUAL_DISCOUNTS

    # Chen and Goodman, equation 17: Y, and D1, D2 and D3+
    share = numbers[1] / (numbers[1] + 2 * numbers[2])
    discounts: dict[int, float] = {}
    for count in (1, 2, 3):
        discounts[count] = count - (count + 1) * share * numbers[count + 1] / numbers[count]

    is_usable = all(0 < discount <= count for count, discount in discounts.items())
    return discounts if is_usable else USUAL_DISCOUNTS


def write_arpa(model: NgramModel, path: str | Path) -> None:
    """Write an ARPA file, whose logarithms are to the base 10."""
    orders = [*model.probabilities]
    orders[0] = {(START,): 0.0, **orders[0]}
    with written_aside(Path(path), "w") as file:
        file.write(f"{ARPA_HEAD}\n")
        file.writelines(f"ngram {n}={len(ngrams)}\n" for n, ngrams in enumerate(orders, start=1))
        for length, ngrams in enumerate(orders, start=1):
            backoffs = model.backoffs[length - 1] if length < len(orders) else {}
            file.write(f"\n\\{length}-grams:\n")
            for ngram, probability in sorted(ngrams.items()):
                logarithm = math.log10(probability) if probability else NEVER
                backoff = f"\t{math.log10(backoffs[ngram]):.6f}" if ngram in backoffs else ""
                file.write(f"{logarithm:.6f}\t{' '.join(ngram)}{backoff}\n")

        file.write("\n\\end\\\n")
