"""States of the loader: what a state names, and which states are refused."""

import json
from pathlib import Path

import pytest

from tests.support.data.loading import TOKENIZER, FakeConfig, loader, same
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.plan import epoch_plan
from wenet_uio.dataset.plan.groups import PlannedBatch
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer


@pytest.fixture
def lists(make_lists):
    return make_lists(20)


@pytest.fixture
def in_three(monkeypatch):
    """Every step has several micro-batches."""
    step = epoch_plan.EpochPlan.step

    def in_three(plan, *place):
        planned = step(plan, *place)
        pieces = [part for piece in planned.pieces for part in (piece[:1], piece[1:2], piece[2:])]
        return PlannedBatch(planned.index, tuple(piece for piece in pieces if len(piece)))

    monkeypatch.setattr(epoch_plan.EpochPlan, "step", in_three)


@pytest.mark.parametrize(
    ("taken", "options"),
    [
        *((taken, {}) for taken in (1, 2, 3, 4)),
        (2, {"epoch_steps": 100}),
        (3, {"epoch_steps": 100}),
        (1, {"num_workers": 1}),
        (4, {"num_workers": 1}),
    ],
)
def test_a_state_between_micro_batches_resumes_with_the_next_one(lists, in_three, taken, options):
    expected = list(loader(lists["raw"], "raw"))
    one = loader(lists["raw"], "raw", **options)
    stream = iter(one)
    read = [next(stream) for _ in range(taken)]
    other = loader(lists["raw"], "raw", **options)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    rest = [batch for batch, _ in zip(other, expected[taken:], strict=False)]
    assert all(same(*pair) for pair in zip(read + rest, expected, strict=True))
    assert (other.cursor.data_pass, other.cursor.position) == (1, 0)


def test_a_break_between_micro_batches_goes_on_with_the_next_one(lists, in_three):
    expected = list(loader(lists["raw"], "raw"))
    one = loader(lists["raw"], "raw")
    read = [next(iter(one)) for _ in range(4)]
    assert all(same(*pair) for pair in zip([*read, *one], expected, strict=True))


def test_several_ranks_have_no_state_between_micro_batches(lists, in_three):
    one, other = (loader(lists["raw"], "raw", rank=rank, world_size=2) for rank in (0, 1))
    stream = iter(one)
    assert not next(stream).closes_step
    with pytest.raises(
        ValueError, match="at the end of a step: after a batch whose closes_step is true"
    ):
        one.state_dict()
    while not next(stream).closes_step:
        pass
    other.load_state_dict(one.state_dict())
    alone = loader(lists["raw"], "raw")
    next(iter(alone))
    with pytest.raises(ValueError, match="inside a step of one rank: resume it on one rank"):
        other.load_state_dict(alone.state_dict())


def test_bad_samples_of_a_step_that_was_resumed_in_its_middle_are_in_the_ledger_once(
    lists, in_three, tmp_path
):
    with open(lists["raw"], "a") as file:
        file.write('{"key": "lost", "wav": "nowhere.wav", "txt": "a"}\n')

    def make():
        return loader(lists["raw"], "raw", ledger=Ledger(tmp_path / "bad.jsonl"))

    one = make()
    for line in open(lists["raw"]).readlines()[:10]:
        open(line.split('"wav": "')[1].split('"')[0], "wb").close()
    stream = iter(one)
    next(stream)
    state = one.state_dict()
    next(stream)
    other = make()
    other.load_state_dict(state)
    list(other)
    keys = [json.loads(line)["key"] for line in open(tmp_path / "bad.jsonl")]
    assert sorted(keys) == ["lost", *(f"utt{number:04d}" for number in range(10))]


def test_a_state_between_micro_batches_of_changed_data_starts_the_pass_over_if_that_is_allowed(
    lists, in_three
):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    other = loader(lists["raw"], "raw", conf={"batch_conf": {"batch_size": 3}})
    with pytest.raises(ValueError, match="changed since the checkpoint"):
        other.load_state_dict(one.state_dict())
    other.load_state_dict(one.state_dict(), allow_changes=True)
    assert sum(len(batch) for batch in other) == 20


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_changed_shuffle_is_refused_within_an_epoch_and_taken_between_epochs(lists, shuffle):
    one = loader(lists["raw"], "raw", conf={"shuffle": shuffle})
    one.set_epoch(1)
    next(iter(one))
    other = loader(lists["raw"], "raw", conf={"shuffle": not shuffle})
    with pytest.raises(
        ValueError, match=r"shuffle changed since the checkpoint, which is inside epoch 1"
    ):
        other.load_state_dict(one.state_dict())
    one.set_epoch(2)
    other.load_state_dict(one.state_dict())
    assert sum(len(batch) for batch in other) == 20


def test_another_version_of_the_planner_is_refused_within_an_epoch_and_taken_between_epochs(
    lists, monkeypatch
):
    one, other = loader(lists["raw"], "raw"), loader(lists["raw"], "raw")
    next(iter(one))
    inside = one.state_dict()
    one.set_epoch(3)
    monkeypatch.setattr("wenet_uio.dataset.plan.lanes.PLANNERS", (99, 100))
    with pytest.raises(
        ValueError, match=r"the planner of wenet_uio \(version \d+, now 99\) changed .* epoch 0"
    ):
        other.load_state_dict(inside)
    other.load_state_dict(one.state_dict())
    assert other.epoch == 3
    other.load_state_dict(inside, allow_changes=True)
    assert (other.epoch, other.cursor.position) == (0, 0)


@pytest.mark.parametrize("form", ["raw", "shard"])
def test_a_state_of_one_rank_goes_on_in_its_order_on_two_ranks(lists, form):
    expected = [batch.keys for batch in loader(lists[form], form)]
    alone = loader(lists[form], form)
    stream = iter(alone)
    next(stream), next(stream)
    state = alone.state_dict()
    assert state["planner"] == 2

    ranks = [loader(lists[form], form, rank=rank, world_size=2) for rank in range(2)]
    with pytest.raises(
        ValueError, match=r"the planner of wenet_uio \(version 2, now 3\) changed .* epoch 0"
    ):
        ranks[0].load_state_dict({**state, "synced": 2})
    for each in ranks:
        each.load_state_dict(state)
    rest = [[batch.keys for batch in each] for each in ranks]
    whole = len(expected) // 2 * 2
    assert rest[0][: whole // 2 - 1] == expected[2:whole:2]
    assert rest[1][: whole // 2 - 1] == expected[3:whole:2]
    assert sorted(key for rank in rest for keys in rank for key in keys) == sorted(
        sum(expected[2:], ())
    )
    assert ranks[0].state_dict()["planner"] == 3


@pytest.mark.parametrize(
    "key", ["planner", "micro_batches", "synced", "owed", "counts", "reshuffle"]
)
def test_a_state_that_lacks_a_key_is_refused_with_its_name(lists, key):
    one = loader(lists["raw"], "raw")
    state = {name: value for name, value in one.state_dict().items() if name != key}
    with pytest.raises(ValueError, match=rf"another version of wenet_uio \(it lacks {key}\)"):
        one.load_state_dict(state)


@pytest.mark.parametrize(
    "batch_conf", [{"batch_size": 2}, {"batch_type": "dynamic", "max_frames_in_batch": 900}]
)
def test_raw_lists_and_shards_give_every_rank_the_same_batches_in_the_same_order(lists, batch_conf):
    found = []
    for form in ("raw", "shard"):
        ranks = [
            loader(lists[form], form, rank=rank, world_size=4, conf={"batch_conf": batch_conf})
            for rank in range(4)
        ]
        found.append([[batch.keys for batch in each] for each in ranks])
    assert found[0] == found[1]
    assert len({len(batches) for batches in found[0]}) == 1


def test_other_numbers_of_tokens_of_texts_of_equal_length_are_refused_inside_an_epoch(lists):
    conf = {"batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 200, "batch_tokens": 9}}
    words = Tokenizer(CharSplitter((), split_with_space=True), TOKENIZER.symbols)

    def make():
        return build_loader(
            lists["raw"], "raw", FakeConfig(**conf), words, training=True, options=LoaderOptions()
        )

    one = make()
    next(iter(one))
    state = one.state_dict()
    make().load_state_dict(state)
    text = Path(lists["raw"]).read_text()
    Path(lists["raw"]).write_text(text.replace('"abc"', '"a c"'))
    with pytest.raises(ValueError, match=r"the numbers of tokens of .*raw.list changed since"):
        make().load_state_dict(state)
    make().load_state_dict(state, allow_changes=True)


def test_a_pass_of_changed_data_that_starts_over_has_done_no_step(lists, make_lists):
    """The steps done count again from there, also for a later run with `epoch_steps`."""
    one = loader(lists["raw"], "raw")
    batches = iter(one)
    next(batches), next(batches)
    state = one.state_dict()
    assert state["steps_done"] == 2

    other = loader(make_lists(25)["raw"], "raw")
    other.load_state_dict(state, allow_changes=True)
    assert other.state_dict()["steps_done"] == 0
    next(iter(other))

    nominal = loader(make_lists(25)["raw"], "raw", epoch_steps=5)
    nominal.load_state_dict(other.state_dict())
    assert len(nominal) == 4
