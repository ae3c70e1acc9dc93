from __future__ import annotations

from tests.train.support.tiny import ListLoader, tiny_batch
from wenet_uio.train.micro_batches import steps


def test_a_step_has_accum_grad_loader_steps_and_the_last_step_has_the_rest() -> None:
    batches = [tiny_batch([2], seed) for seed in range(6)]
    batches[1].closes_step = False
    assert [[batch.keys[0] for batch in step] for step in steps(ListLoader(batches), 2)] == [
        ["0-0", "1-0", "2-0"],
        ["3-0", "4-0"],
        ["5-0"],
    ]


def test_steps_take_a_batch_from_the_loader_only_when_it_is_needed() -> None:
    loader = ListLoader([tiny_batch([2], seed) for seed in range(5)])
    for number, _ in enumerate(steps(loader, 2), 1):
        assert loader.state_dict() == (
            {"epoch": 0, "position": 2 * number} if number < 3 else {"epoch": 1, "position": 0}
        )
    assert loader.state_dict() == {"epoch": 1, "position": 0}
