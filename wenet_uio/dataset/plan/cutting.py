"""Cut sorted samples into batches of nearly equal padded cost: number of samples times the largest
units.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import overload

import numpy as np

Run = tuple[int, int]
"""First sample of a batch, and one past the last."""


def fewest_batches(units: np.ndarray, bound: int) -> int:
    """Return the smallest number of batches for samples of rising `units`; only a batch of a single
    sample may exceed `bound`.
    """
    return len(_runs(units.tolist(), bound)) if len(units) else 0


def cut(units: np.ndarray, count: int, bound: int) -> list[Run]:
    """Cut samples of rising `units` into exactly `count` runs, so that the largest padded cost is
    minimal.

    The minimum is found to one part in a thousand. No run exceeds `bound` if `count` runs within
    the bound exist. If there are fewer samples than `count`, the last runs are empty.

    Raises:
        ValueError: there are samples, and `count` is not positive.
    """
    values = units.tolist()
    if count >= len(values):
        single_samples = [(first, first + 1) for first in range(len(values))]
        return single_samples + [(len(values), len(values))] * (count - len(values))
    if count <= 0:
        raise ValueError(f"{len(values)} samples cannot be cut into {count} batches")

    # Bisect the largest cost of a run: `low` is too little for `count` runs, `high` is enough. A run
    # costs at least its last sample, and the runs together at least all samples. Runs of equally
    # many samples, each as dear as the last, cost no more than `high`.
    low = max(values[-1], sum(values) // count) - 1
    high = values[-1] * -(-len(values) // count)
    best = _runs(values, high)
    if low < bound < high:
        runs = _runs(values, bound, at_most=count)
        if runs is None:
            low = bound
        else:
            best, high = runs, bound

    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        runs = _runs(values, middle, at_most=count)
        if runs is None:
            low = middle
        else:
            best, high = runs, middle

    while len(best) < count:
        _halve_largest(best, values)

    return best


def cut_to_target(units: np.ndarray, target: int) -> list[Run]:
    """Cut samples of rising `units` into as few runs as a cost of `target` allows; larger samples
    are runs of one.
    """
    first = int(np.searchsorted(units, target, side="right"))
    runs = cut(units[:first], fewest_batches(units[:first], target), target)
    return runs + [(number, number + 1) for number in range(first, len(units))]


@overload
def _runs(values: list[int], cap: int) -> list[Run]: ...


@overload
def _runs(values: list[int], cap: int, at_most: int) -> list[Run] | None: ...


def _runs(values: list[int], cap: int, at_most: int | None = None) -> list[Run] | None:
    """Cut from the left into the longest runs of cost `cap` or less; None if that takes more than
    `at_most` runs.

    `values` are above 0 and rise, so the last sample of a run is its dearest. A sample that costs
    more than `cap` is a run of its own.
    """
    runs = []
    first, end = 0, len(values)
    while first < end:
        if len(runs) == at_most:
            return None

        # The run ends between two bounds: it cannot go beyond `latest_end`, even if all its samples
        # were as cheap as its first, and it gets to `earliest_end`, even if all were as dear as the
        # last one before `latest_end`.
        latest_end = min(end, first + cap // values[first])
        earliest_end = first
        if latest_end > first:
            earliest_end = min(latest_end, first + cap // values[latest_end - 1])

        # Bisect for the first end at which the run costs too much; the cost rises with the end.
        steps_beyond_earliest = bisect_left(
            range(earliest_end + 1, latest_end + 1),
            True,
            key=lambda run_end: (run_end - first) * values[run_end - 1] > cap,
        )
        run_end = max(earliest_end + steps_beyond_earliest, first + 1)
        runs.append((first, run_end))
        first = run_end

    return runs


def _halve_largest(runs: list[Run], values: list[int]) -> None:
    """Halve, in place, the run of the highest cost that has more than one sample."""

    def padded_cost(number: int) -> int:
        first, end = runs[number]
        return (end - first) * values[end - 1]

    can_be_halved = [number for number, (first, end) in enumerate(runs) if end - first > 1]
    largest = max(can_be_halved, key=padded_cost)
    first, end = runs[largest]
    middle = (first + end) // 2
    runs[largest : largest + 1] = [(first, middle), (middle, end)]
