from __future__ import annotations

from tests.train.support.tiny import ListLoader, tiny_batch
from wenet_uio.train.micro_batches import steps


def test_steps_hold_accum_grad_closed_batches_and_what_is_left_is_a_step_of_its_own() -> None:
    batches = [tiny_batch([2], seed) for seed in range(6)]
    batches[1].closes_step = False
    assert [[batch.keys[0] for batch in step] for step in steps(ListLoader(batches), 2)] == [
        ["0-0", "1-0", "2-0"],
        ["3-0", "4-0"],
        ["5-0"],
    ]


def test_steps_take_no_batch_from_the_loader_ahead_of_its_time() -> None:
    loader = ListLoader([tiny_batch([2], seed) for seed in range(5)])
    for number, _ in enumerate(steps(loader, 2), 1):
        assert loader.state_dict() == {"epoch": 0, "position": min(2 * number, 5)}
    assert loader.state_dict() == {"epoch": 1, "position": 0}
