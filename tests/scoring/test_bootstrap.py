import numpy as np
import pytest

from wenet_uio.scoring import bootstrap
from wenet_uio.scoring.bootstrap import compare, interval
from wenet_uio.scoring.wer import Counts


def drawn(rate, utterances=2000, words=10, seed=0):
    errors = np.random.default_rng(seed).binomial(words, rate, utterances)
    return [Counts(correct=words - int(wrong), substituted=int(wrong)) for wrong in errors]


def test_the_interval_has_the_width_that_theory_gives_independent_errors():
    low, high = interval(drawn(0.1), 2000)
    width = 2 * 1.96 * 100 * (0.1 * 0.9 / 20_000) ** 0.5
    assert high - low == pytest.approx(width, rel=0.1)
    assert low < sum(drawn(0.1), Counts()).rate < high


def test_an_interval_leaves_out_two_and_a_half_percent_at_each_end():
    """Ends of another level would differ: 1.88 standard deviations at 94 %, 2.05 at 96 %."""
    low, high = interval([Counts(correct=1), Counts(substituted=1)] * 5000, 6000)
    deviation = 100 * (0.25 / 10_000) ** 0.5
    assert (50 - low) / deviation == pytest.approx(1.96, abs=0.04)
    assert (high - 50) / deviation == pytest.approx(1.96, abs=0.04)


def test_longer_utterances_weigh_more():
    counts = [Counts(correct=98, substituted=2)] * 50 + [Counts(substituted=1)] * 50
    low, high = interval(counts, 1000)
    assert low < sum(counts, Counts()).rate < high < 10


def test_equal_errors_are_not_significant_and_far_fewer_errors_are():
    first = drawn(0.1)
    same = compare(first, first, 500)
    assert (same.difference, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    better = compare(first, drawn(0.07, seed=1), 500)
    assert better.low < better.difference < better.high < 0
    assert better.p == 0.0


def test_both_systems_are_resampled_together():
    """Errors that both systems make on hard utterances cancel: a steady small gain is seen through
    wide variation.
    """
    hard = np.random.default_rng(0).integers(0, 10, 300).tolist()
    first = [Counts(correct=10, substituted=wrong + 1) for wrong in hard]
    second = [Counts(correct=11, substituted=wrong) for wrong in hard]
    low, high = interval(first, 500)
    found = compare(first, second, 500)
    assert found.high - found.low < (high - low) / 5
    assert found.p == 0.0


def test_resamples_are_the_same_every_time():
    assert interval(drawn(0.2, 50), 100) == interval(drawn(0.2, 50), 100)


def test_resamples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    first, second = drawn(0.1, 30), drawn(0.2, 30, seed=1)
    together = compare(first, second, 100)
    for number in (1, 70, 1 << 30):
        monkeypatch.setattr(bootstrap, "DRAWN_AT_ONCE", number)
        assert compare(first, second, 100) == together
