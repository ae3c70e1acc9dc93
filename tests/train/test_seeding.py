from __future__ import annotations

import torch

from wenet_uio.train.seeding import seed_everything


def test_random_numbers_of_a_step_depend_only_on_seed_step_and_rank() -> None:
    def draw(*arguments: int) -> torch.Tensor:
        seed_everything(*arguments)
        return torch.rand(3)

    assert torch.equal(draw(1, 2, 3), draw(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not torch.equal(draw(1, 2, 3), draw(*other))
