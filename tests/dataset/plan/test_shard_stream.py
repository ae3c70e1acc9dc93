from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.dataset.plan import shard_stream as stream_module
from wenet_uio.dataset.plan.shard_stream import ShardStream


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
