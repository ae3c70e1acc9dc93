"""Random corpora on random numbers of ranks and real workers, stopped and resumed at random
places.
"""

from collections import Counter
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset

from tests.dataset.plan.test_epoch_plan import (
    POLICIES,
    corpora,
    kept_samples,
    measure,
    small_scales,
)
from wenet_uio.dataset.cursor import Cursor
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Batch

small_scales = pytest.fixture(autouse=True, scope="module")(small_scales)
NOTHING = torch.zeros(0)


class NameOnly(Dataset):
    """Reads no data: the keys of a batch are the shards and rows of its work."""

    def __getitem__(self, work):
        keys = tuple(zip(work.shards.tolist(), work.rows.tolist(), strict=True))
        return Batch(
            keys, NOTHING, NOTHING, NOTHING, NOTHING, index=work.index, closes_step=work.closes_step
        )


def ranks_of(corpus, rule, world_size, workers, state):
    """The loaders of all ranks. One rank has workers; its loader is the first."""
    chosen = (7 * world_size + workers) % world_size
    planner, *loaders = [
        Loader(
            Cursor(
                corpus,
                rule,
                options := LoaderOptions(
                    rank, world_size, count, prefetch=2, seed=1, empty_batches=True
                ),
            ),
            NameOnly(),
            options,
            max_bad_ratio=0.0,
        )
        for rank, count in [
            (0, 0),
            (chosen, workers),
            *((rank, 0) for rank in range(world_size) if rank != chosen),
        ]
    ]
    # A plan is a pure function: computed once for all ranks
    plan_of = cache(planner.cursor.plan_of)
    for loader in (planner, *loaders):
        if state is not None:
            loader.load_state_dict(state)
    for loader in loaders:
        loader.cursor.plan_of = plan_of
    return loaders


def take(loader, steps):
    """Batches of the next `steps` of a loader."""
    batches, done = [], 0
    iterator = iter(loader)
    while done < steps:
        batches.append(next(iterator))
        done += batches[-1].closes_step
    if not len(loader):
        assert next(iterator, None) is None
    return batches


@settings(max_examples=15)
@given(corpora, st.sampled_from(POLICIES), st.data())
def test_any_ranks_and_workers_read_every_sample_once_in_equal_steps_and_leave_one_state(
    corpus, policy, data
):
    rule = measure(policy)
    seen, state = Counter(), None
    while state is None or state["epoch"] == 0:
        world_size, workers = data.draw(st.integers(1, 64)), data.draw(st.integers(0, 2))
        loaders = ranks_of(corpus, rule, world_size, workers, state)
        (left,) = {len(loader) for loader in loaders}
        steps = data.draw(st.integers(min(1, left), left))
        plan, position = loaders[0].cursor.plan, loaders[0].cursor.position
        for loader in loaders:
            batches = take(loader, steps)
            seen.update(key for batch in batches for key in batch.keys)
            for step, batch in enumerate(batch for batch in batches if batch.closes_step):
                # Else batches are shared out
                whole = position + (step + 1) * world_size <= plan.num_batches
                assert not whole or batch.index == position + step * world_size + loader.cursor.rank
        state, *others = [loader.state_dict() for loader in loaders]
        assert all(other == state for other in others)
        assert len(str(state)) < 1024
        del loader, loaders  # ends the workers before others are forked
    assert set(seen) == kept_samples(corpus, rule)
    assert max(seen.values(), default=1) == 1
