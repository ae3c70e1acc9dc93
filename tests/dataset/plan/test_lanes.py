from types import SimpleNamespace

import numpy as np
import pytest

from wenet_uio.dataset.plan.lanes import COST_UNIT, Division, Lanes


def lanes_of(total, number):
    """`number` lanes of ten shards whose costs add up to `total`."""
    shares = np.full(10, total // 10, np.uint32)
    shares[0] += total % 10
    corpus = SimpleNamespace(num_shards=10, num_samples=10, shard_sources=None)
    costs = SimpleNamespace(corpus=corpus, of_entry=lambda entry: shares)
    return Lanes(costs, key=1, division=Division(lanes=number, synced=number))


@pytest.mark.parametrize("number", [1, 2, 3, 8])
@pytest.mark.parametrize("batches", [1, 2, 5])
def test_a_lane_has_the_fewest_rows_that_hold_its_cost(number, batches):
    full = number * batches * COST_UNIT
    assert lanes_of(full - 1, number).rows == batches
    assert lanes_of(full, number).rows == batches
    assert lanes_of(full + 1, number).rows == batches + 1
