from __future__ import annotations

import torch

from tests.train.support.tiny import tiny_batch


def test_rows_of_a_batch_are_padded_to_their_own_longest() -> None:
    batch = tiny_batch([9, 7, 4], seed=1, tokens=3)
    first, rest = batch.rows(slice(1)), batch.rows(slice(1, None))
    assert (first.keys, rest.keys) == (("1-0",), ("1-1", "1-2"))
    assert (first.feats.shape[:2], rest.feats.shape[:2]) == ((1, 9), (2, 7))
    assert (first.target.shape, rest.target.shape) == ((1, 1), (2, 3))
    assert torch.equal(rest.feats, batch.feats[1:, :7])
    assert (first.planned, rest.planned) == (1, 2)
    assert first.seconds + rest.seconds == batch.seconds
