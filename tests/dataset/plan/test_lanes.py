from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.dataset.plan import lanes as stream_module
from wenet_uio.dataset.plan.lanes import COST_UNIT, Division, Lanes, ShardStream


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


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), st.integers(0, 100))
def test_positions_and_costs_equal_those_of_the_stored_order(costs, key):
    with patch.object(stream_module, "CHUNK", 8):
        stream = ShardStream(np.asarray(costs, np.uint32), key)
        order = [stream.shard_at(position) for position in range(len(costs))]
        assert sorted(order) == list(range(len(costs)))
        before = np.concatenate([[0], np.cumsum([costs[shard] for shard in order])])
        assert [
            stream.cost_before(position) for position in range(len(costs) + 1)
        ] == before.tolist()
        assert stream.total == before[-1]
        for cost in range(int(before[-1]) + 1):
            assert stream.position_of(cost) == int(np.searchsorted(before, cost, side="left"))


def test_only_the_chunks_used_last_are_kept():
    with patch.object(stream_module, "CHUNK", 8):
        stream = ShardStream(np.ones(80, np.uint32), 1)
        for position in (0, 8, 16, 0, 24, 32, 40):
            stream.shard_at(position)
        assert list(stream._chunks) == [0, 3, 4, 5]


def test_two_keys_order_differently():
    costs = np.ones(100, np.uint32)
    first, second = ([ShardStream(costs, key).shard_at(n) for n in range(100)] for key in (1, 2))
    assert first != second
