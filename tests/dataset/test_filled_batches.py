"""Loops of one's own get only batches with utterances, unless they ask for all."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data.loading import FakeConfig, loader, same
from tests.support.train.tiny import tiny_batch
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.loader import FilledBatches
from wenet_uio.dataset.options import LoaderOptions

STATIC = {"batch_conf": {"batch_size": 2}}
PIECES = {"batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 250}}


@pytest.fixture
def few(make_lists):
    return make_lists(5)["raw"]


@pytest.fixture
def mostly_bad(make_lists):
    """30 utterances; the audio of two in three cannot be read any more."""
    path = make_lists(30)["raw"]
    loader(path, "raw")  # makes the index
    for number, line in enumerate(Path(path).read_text().splitlines()):
        if number % 3:
            wav = Path(path).parent / json.loads(line)["wav"]
            wav.write_bytes(wav.read_bytes()[:60])
    return path


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "ranks", [1, 4, *(pytest.param(ranks, marks=pytest.mark.all) for ranks in (2, 8))]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_no_batch_is_empty_and_no_utterance_missing(few, training, ranks, workers):
    seen = [
        list(
            loader(
                few,
                "raw",
                training,
                STATIC,
                False,
                rank=rank,
                world_size=ranks,
                num_workers=workers,
            )
        )
        for rank in range(ranks)
    ]
    batches = list(itertools.chain(*seen))
    assert all(len(batch) and batch.feats.size(1) for batch in batches)
    assert len({key for batch in batches for key in batch.keys}) == 5
    assert sum(map(len, batches)) == 5


@pytest.mark.parametrize("conf", [STATIC, PIECES])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_with_utterances_are_those_of_a_loader_of_all_batches(
    mostly_bad, conf, workers
):
    conf = {**conf, "max_bad_ratio": 1.0}
    every = list(loader(mostly_bad, "raw", conf=conf, num_workers=workers))
    filled = list(loader(mostly_bad, "raw", conf=conf, empty_batches=False, num_workers=workers))
    kept = [batch for batch in every if len(batch)]
    assert len(kept) < len(every)
    assert [batch.keys for batch in filled] == [batch.keys for batch in kept]


def test_the_last_batch_of_a_step_closes_it_if_an_empty_one_followed(mostly_bad):
    conf = {**PIECES, "max_bad_ratio": 1.0}
    steps_of = {batch.index for batch in loader(mostly_bad, "raw", conf=conf) if len(batch)}
    filled = list(loader(mostly_bad, "raw", conf=conf, empty_batches=False))
    assert sum(batch.closes_step for batch in filled) == len(steps_of)
    last = {batch.index: batch.closes_step for batch in filled}
    assert all(last.values())


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_batch_that_is_passed_on_counts_all_micro_batches_up_to_it(steps):
    """`steps` tell which micro-batches of each step have utterances."""
    batches, taken, counted = FilledBatches(), 0, 0
    for step in steps:
        for number, is_filled in enumerate(step, 1):
            batch = tiny_batch([3] if is_filled else [], seed=number)
            batch.closes_step = number == len(step)
            taken += 1
            for reached in batches.add(batch):
                counted += reached.micro_batches
                # A batch that goes on is passed on when the next one with utterances comes.
                assert counted == (taken if reached.closes_step else taken - 1)


@pytest.mark.parametrize("conf", [STATIC, PIECES])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_resumes_after_any_batch(mostly_bad, conf, ranks):
    """Also where empty batches were left out before or after it."""
    conf = {**conf, "max_bad_ratio": 1.0}

    def make():
        return loader(mostly_bad, "raw", conf=conf, empty_batches=False, rank=0, world_size=ranks)

    whole, resumed_somewhere = list(make()), 0
    one = make()
    for number, batch in enumerate(one, 1):
        if not batch.closes_step and ranks > 1:
            continue
        other = make()
        other.load_state_dict(one.state_dict())
        if other.epoch == 0:
            rest = list(other)
            assert len(rest) == len(whole) - number
            assert all(map(same, rest, whole[number:]))
            resumed_somewhere += 1
    assert resumed_somewhere
    assert one.epoch == 1


def test_all_ranks_end_their_epoch_together(few):
    ranks = [
        loader(few, "raw", conf=STATIC, empty_batches=False, rank=rank, world_size=8)
        for rank in range(8)
    ]
    for one in ranks:
        list(one)
    states = [one.state_dict() for one in ranks]
    assert all(state == states[0] for state in states)
    assert states[0]["epoch"] == 1


def test_a_rank_that_has_a_step_less_is_told_what_ddp_needs(few, caplog):
    for rank in range(8):
        list(loader(few, "raw", conf=STATIC, empty_batches=False, rank=rank, world_size=8))
    assert "LoaderOptions(empty_batches=True)" in caplog.text


@pytest.mark.parametrize(("empty_batches", "expected"), [(False, 5), (True, 8)])
def test_a_collate_of_the_user_is_never_asked_for_a_batch_without_examples(
    few, empty_batches, expected
):
    found = []
    for rank in range(8):
        options = LoaderOptions(rank, 8, collate=max, empty_batches=empty_batches)
        one = build_loader(few, "raw", FakeConfig(**STATIC), None, training=False, options=options)
        found += list(one)
    assert len(found) == expected
    assert sum(batch is None for batch in found) == expected - 5
