"""N-gram models: probabilities, and what KenLM reads of their files."""

from __future__ import annotations

import itertools
import math

import pytest

from wenet_uio.text.ngrams import END, START, UNKNOWN, NgramModel, estimate, write_arpa

TEXTS = {
    "one letter": ["a"],
    "empty texts": ["", "", "ab"],
    "estimated discounts of which one is 0": ["b", "", "a", "bb", "b", "ba"],
    "short": ["ab", "abc", "b", "cab"],
    "repeated": ["abab", "abab", "bcab", "aaa", "cc", "abcabcabc", "ba"] * 3,
}


def contexts(model: NgramModel, most: int):
    units = [unit for (unit,) in model.probabilities[0] if unit != END]
    yield ()
    for length in range(1, most + 1):
        yield from itertools.product(units, repeat=length)
        yield from ((START, *rest) for rest in itertools.product(units, repeat=length - 1))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("name", TEXTS)
def test_probabilities_after_every_context_add_up_to_one(order, name):
    model = estimate(TEXTS[name], order)
    vocabulary = [unit for (unit,) in model.probabilities[0]]
    assert START not in vocabulary
    assert {END, UNKNOWN} < set(vocabulary)
    for context in contexts(model, order):
        each = [model.probability(context, unit) for unit in vocabulary]
        assert min(each) > 0
        assert sum(each) == pytest.approx(1.0)


def test_the_formula_of_kneser_and_ney_on_paper():
    """Bigrams of "ab", "ab", "b": too few counts for discounts of their own, so 0.5, 1 and 1.5."""
    model = estimate(["ab", "ab", "b"], 2)
    # Units that each unit occurs after: a 1 (<s>), b 2 (a, <s>), </s> 1 (b); <unk> is the fourth.
    rest = (0.5 + 1.0 + 0.5) / 4 / 4
    a, b, end = 0.5 / 4 + rest, 1.0 / 4 + rest, 0.5 / 4 + rest
    assert model.probability((), "a") == pytest.approx(a)
    assert model.probability((), "b") == pytest.approx(b)
    assert model.probability((), END) == pytest.approx(end)
    assert model.probability((), "never seen") == pytest.approx(rest)
    # After <s>: a twice, b once. After a: b twice. After b: </s> three times.
    assert model.probability((START,), "a") == pytest.approx(1.0 / 3 + 1.5 / 3 * a)
    assert model.probability((START,), "b") == pytest.approx(0.5 / 3 + 1.5 / 3 * b)
    assert model.probability(("a",), "b") == pytest.approx(1.0 / 2 + 1.0 / 2 * b)
    assert model.probability(("b",), END) == pytest.approx(1.5 / 3 + 1.5 / 3 * end)
    assert model.probability(("b",), "a") == pytest.approx(1.5 / 3 * a)


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("name", TEXTS)
def test_kenlm_reads_the_same_probabilities(order, name, tmp_path):
    kenlm = pytest.importorskip("kenlm")
    model = estimate(TEXTS[name], order)
    write_arpa(model, tmp_path / "lm.arpa")
    read = kenlm.Model(str(tmp_path / "lm.arpa"))
    assert read.order == order
    for text in ["", "a", "abc", "cabx", "xx", *TEXTS[name]]:
        units = (START, *text, END)
        expected = sum(
            math.log10(model.probability(units[:place], units[place]))
            for place in range(1, len(units))
        )
        assert read.score(" ".join(text)) == pytest.approx(expected, abs=1e-4 * len(units))


def test_a_higher_order_predicts_texts_of_the_same_kind_better():
    train, held_out = TEXTS["repeated"], ["abcab", "abab"]

    def logarithm(order: int) -> float:
        model = estimate(train, order)
        return sum(
            math.log(model.probability((START, *text)[: place + 1], unit))
            for text in held_out
            for place, unit in enumerate((*text, END))
        )

    assert logarithm(1) < logarithm(2) < logarithm(3)


@pytest.mark.parametrize(("texts", "message"), [([], "no sentence"), ([["a", START]], "<s> is a")])
def test_what_no_model_can_be_estimated_from_is_named(texts, message):
    with pytest.raises(ValueError, match=message):
        estimate(texts, 2)
