"""Learning rates by step and epoch, against the formulas of their papers."""

import pytest

from tests.support.train.tiny import tiny_config
from wenet_uio.train.schedules import build_schedule


def factor(step: float, epoch: float = 0, **conf: float) -> float:
    """The factor of Eden, whose fourth power `lr_batches` steps halve."""
    config = tiny_config(scheduler="eden", scheduler_conf={"lr_batches": 100, **conf})
    return build_schedule(config)(step, epoch)


def test_eden_without_a_warm_up_begins_with_the_whole_rate() -> None:
    assert factor(1, warmup_batches=0) == 1.0
    assert factor(101, warmup_batches=0) == pytest.approx(0.5**0.25)


def test_the_warm_up_of_eden_rises_in_a_line_to_the_whole_rate() -> None:
    conf = {"lr_batches": 1e9, "warmup_batches": 10, "warmup_start": 0.5}
    assert [factor(step, **conf) for step in (1, 6, 11, 12)] == pytest.approx([0.5, 0.75, 1, 1])
