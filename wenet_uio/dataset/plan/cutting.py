"""Cutting sorted samples into batches of equal padded cost: number of samples times the largest units among them."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np


def fewest_batches(units: np.ndarray, bound: int) -> int:
    """Batches that samples of rising `units` need at least, none above `bound` unless a single sample is."""
    return len(_runs(units.tolist(), bound)) if len(units) else 0


def cut(units: np.ndarray, count: int, bound: int) -> list[tuple[int, int]]:
    """Cut samples of rising `units` into exactly `count` runs whose largest padded cost is as small as can be.

    No run is above `bound` where `count` runs can hold that. With fewer samples than `count` the last runs are empty.

    Returns:
        (first, last) of each run.
    """
    values = units.tolist()
    if count >= len(values):
        return [(min(i, len(values)), min(i + 1, len(values))) for i in range(count)]
    if count <= 0:
        raise ValueError(f"{len(values)} samples cannot be cut into {count} batches")
    low, high = max(values[-1], sum(values) // count) - 1, values[-1] * -(-len(values) // count)
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
        _split_dearest(best, values)
    return best


def _runs(values: list[int], cap: int, at_most: int | None = None) -> list[tuple[int, int]] | None:
    """Longest runs from the left that cost at most `cap` each; None where that takes more than `at_most`."""
    runs = []
    first, end = 0, len(values)
    while first < end:
        if len(runs) == at_most:
            return None
        # One longer than the longest run: cost(last) = (last - first) * values[last - 1] rises with last.
        reach = min(end, first + cap // values[first])
        last = bisect_left(range(first + 1, reach + 1), True, key=lambda n: (n - first) * values[n - 1] > cap) + first
        last = max(last, first + 1)
        runs.append((first, last))
        first = last
    return runs


def _split_dearest(runs: list[tuple[int, int]], values: list[int]) -> None:
    """Halve, in place, the dearest run that has more than one sample."""
    dearest = max(
        (number for number, (first, last) in enumerate(runs) if last - first > 1),
        key=lambda number: (runs[number][1] - runs[number][0]) * values[runs[number][1] - 1],
    )
    first, last = runs[dearest]
    middle = (first + last) // 2
    runs[dearest : dearest + 1] = [(first, middle), (middle, last)]
