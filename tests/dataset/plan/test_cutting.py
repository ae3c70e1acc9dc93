import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.dataset.plan.cutting import cut, fewest_batches

UNITS = st.lists(st.integers(1, 3000), min_size=1, max_size=80).map(
    lambda values: np.sort(np.asarray(values))
)


def cost(units, run):
    return (run[1] - run[0]) * int(units[run[1] - 1]) if run[1] > run[0] else 0


def brute_force_smallest_cap(units, count):
    """The minimum of the largest cost of `count` runs, by dynamic programming."""
    best = [0.0] + [np.inf] * len(units)
    for _ in range(count):
        best = [0.0] + [
            min(max(best[first], cost(units, (first, last))) for first in range(last))
            for last in range(1, len(units) + 1)
        ]
    return best[-1]


@given(UNITS, st.integers(1, 100), st.integers(100, 12000))
def test_cut_makes_exactly_count_runs_that_cover_all_samples_in_order(units, count, bound):
    runs = cut(units, count, bound)
    assert len(runs) == count
    assert runs[0][0] == 0
    assert runs[-1][1] == len(units)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(runs))


@given(UNITS, st.integers(3000, 12000))
def test_fewest_batches_hold_the_bound_and_one_batch_fewer_does_not(units, bound):
    count = fewest_batches(units, bound)
    assert max(cost(units, run) for run in cut(units, count, bound)) <= bound
    if count > 1:
        assert brute_force_smallest_cap(units, count - 1) > bound


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=14).map(lambda v: np.sort(np.asarray(v))),
    st.integers(1, 6),
)
def test_the_largest_cost_is_within_a_thousandth_of_the_minimum(units, count):
    largest = max(cost(units, run) for run in cut(units, count, bound=10**9))
    assert largest <= brute_force_smallest_cap(units, count) * 1.001 + 1


def test_zero_batches_for_some_samples_are_an_error():
    with pytest.raises(ValueError, match="3 samples cannot be cut into 0"):
        cut(np.array([1, 2, 3]), 0, 100)
