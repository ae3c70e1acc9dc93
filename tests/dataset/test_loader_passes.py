"""Where a pass over the data ends, however its batches are taken."""

from itertools import islice

import pytest

from tests.support.data.loading import loader, same
from wenet_uio.train.micro_batches import optimizer_steps


@pytest.fixture
def lists(make_lists):
    return make_lists(20)


def by_zip(one):
    return [batch for _, batch in zip(range(len(one)), one, strict=False)]


def by_islice(one):
    return list(islice(one, len(one)))


@pytest.mark.parametrize(
    ("take", "options"),
    [
        (by_zip, {}),
        (by_islice, {}),
        (list, {}),
        (by_islice, {"num_workers": 2}),
        (by_zip, {"epoch_steps": 3, "num_workers": 1}),
        (list, {"epoch_steps": 3}),
    ],
)
def test_a_pass_ends_when_its_last_step_was_handed_out(lists, take, options):
    one, whole = loader(lists["raw"], "raw", **options), loader(lists["raw"], "raw")
    expected = iter([*whole, *whole, *whole])
    steps_of_epoch = options.get("epoch_steps", len(whole))
    for epoch in range(3):
        assert one.epoch == epoch
        assert len(one) == steps_of_epoch
        batches = take(one)
        assert len(batches) == steps_of_epoch
        assert all(same(batch, next(expected)) for batch in batches)
    assert one.epoch == 3
    if "epoch_steps" not in options:
        assert (one.cursor.data_pass, one.cursor.position) == (3, 0)


def test_a_nominal_epoch_that_ends_with_a_pass_leaves_the_start_of_the_next_pass(lists):
    steps = len(loader(lists["raw"], "raw"))
    one = loader(lists["raw"], "raw", epoch_steps=steps)
    by_islice(one)
    assert (one.epoch, one.cursor.data_pass, one.cursor.position, one.cursor.steps_done) == (
        1,
        1,
        0,
        0,
    )
    changed = loader(
        lists["raw"], "raw", epoch_steps=optimizer_steps, conf={"batch_conf": {"batch_size": 3}}
    )
    changed.load_state_dict(one.state_dict())  # nothing of the former pass is left


def test_accumulated_steps_end_a_pass(lists):
    one = loader(lists["raw"], "raw")
    for epoch in range(2):
        whole = len(one)
        taken = list(islice(optimizer_steps(one, 3), -(-whole // 3)))
        assert sum(map(len, taken)) == whole
        assert one.epoch == epoch + 1


@pytest.mark.parametrize("workers", [0, 2])
def test_after_a_break_the_next_iterator_goes_on_with_the_rest_of_the_pass(lists, workers):
    one = loader(lists["raw"], "raw", num_workers=workers)
    expected = list(loader(lists["raw"], "raw"))
    first = []
    for batch in one:
        first.append(batch)
        if len(first) == 3:
            break
    assert len(one) == len(expected) - 3
    rest = list(one)
    assert all(same(*pair) for pair in zip(first + rest, expected, strict=True))
    assert one.epoch == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_iterator_goes_on_where_the_first_one_stopped_and_ends_it(lists, workers):
    one = loader(lists["raw"], "raw", num_workers=workers)
    expected = list(loader(lists["raw"], "raw"))
    first, second = iter(one), iter(one)
    batches = [next(first), next(second)]
    with pytest.raises(RuntimeError, match="a newer iterator"):
        next(first)
    batches += second
    assert all(same(*pair) for pair in zip(batches, expected, strict=True))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_that_has_handed_out_its_last_step_takes_nothing_from_the_next_one(
    lists, workers
):
    one = loader(lists["raw"], "raw", num_workers=workers)
    first = iter(one)
    expected = [next(first) for _ in range(len(one))]
    second = iter(one)
    batches = [next(second)]
    assert next(first, None) is None
    batches += second
    assert sorted(sum((batch.keys for batch in batches), ())) == sorted(
        sum((batch.keys for batch in expected), ())
    )


def test_an_iterator_ends_when_the_position_of_its_loader_is_set(lists):
    one = loader(lists["raw"], "raw")
    state = one.state_dict()
    for move in (lambda: one.set_epoch(0), lambda: one.load_state_dict(state)):
        stream = iter(one)
        next(stream)
        move()
        with pytest.raises(RuntimeError, match="position"):
            next(stream)
        assert len(list(one)) == len(loader(lists["raw"], "raw"))
        one.set_epoch(0)


def test_the_position_may_be_set_while_the_last_batch_is_processed(lists):
    one = loader(lists["raw"], "raw")
    for _ in one:
        if one.epoch == 1:
            one.set_epoch(4)
    assert one.epoch == 4
    assert len(list(one)) > 0


def test_a_state_of_the_last_batch_resumes_with_the_next_pass(lists):
    one = loader(lists["raw"], "raw")
    by_islice(one)
    other = loader(lists["raw"], "raw")
    other.load_state_dict(one.state_dict())
    assert other.epoch == 1
    assert all(same(*pair) for pair in zip(other, one, strict=True))


def test_a_pass_of_which_nothing_is_left_ends_without_a_batch(lists):
    one = loader(
        lists["raw"], "raw", conf={"filter_conf": {"min_length": 50000, "max_length": 60000}}
    )
    assert len(one) == 0
    assert list(one) == []
    assert one.epoch == 1


def test_a_nominal_epoch_of_data_without_batches_is_refused(lists):
    one = loader(
        lists["raw"],
        "raw",
        epoch_steps=3,
        conf={"filter_conf": {"min_length": 50000, "max_length": 60000}},
    )
    with pytest.raises(ValueError, match=r"raw.*no batch"):
        list(one)


def test_fewer_steps_of_an_epoch_than_were_done_end_it(lists):
    one = loader(lists["raw"], "raw", epoch_steps=7)
    list(islice(one, 5))
    other = loader(lists["raw"], "raw", epoch_steps=3)
    other.load_state_dict(one.state_dict())
    assert len(other) == 0
    assert list(other) == []
    assert (other.epoch, len(other)) == (1, 3)


def test_a_state_past_the_end_of_its_pass_is_refused(lists):
    one = loader(lists["raw"], "raw")
    next(iter(one))
    state = one.state_dict() | {"position": 999}
    with pytest.raises(
        ValueError, match=r"raw.*position 999 is past the end of pass 0, which has \d+ batches"
    ):
        one.load_state_dict(state)


def test_a_state_at_the_end_of_its_pass_is_refused(lists):
    """A pass that has ended leaves the start of the next one, so no state has this position."""
    one = loader(lists["raw"], "raw")
    next(iter(one))
    batches = one.cursor.plan.num_batches
    last = one.state_dict() | {"position": batches - 1}
    one.load_state_dict(last)
    with pytest.raises(ValueError, match=rf"position {batches} is past the end of pass 0"):
        one.load_state_dict(last | {"position": batches})
