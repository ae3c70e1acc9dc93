"""The statistics of batch norms are kept before a step and restored before the step is repeated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.train.tiny import CPU, small_config, tiny_batch
from wenet_uio.models import build_model
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.statistics import Statistics


class Operations(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def norms(count: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(count)))


def values_of(model: nn.Module) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


def test_restored_statistics_are_those_that_were_kept_last_however_often_a_step_is_repeated() -> (
    None
):
    model = norms(3)
    statistics = Statistics(model)
    model(torch.randn(8, 4))
    before = values_of(model)
    statistics.keep()
    for _ in range(2):
        model(torch.randn(8, 4))
        assert not torch.equal(next(model.buffers()), before[0])
        statistics.restore()
        for found, expected in zip(model.buffers(), before, strict=True):
            assert torch.equal(found, expected)
    model(torch.randn(8, 4))
    # What was kept is no view of the statistics
    assert [int(norm.num_batches_tracked) for norm in model] == [
        2,
        2,
        2,
    ]


def test_all_statistics_are_kept_by_two_operations() -> None:
    with Operations() as operations:
        statistics = Statistics(norms(12))
        operations.counts.clear()
        statistics.keep()
    assert operations.counts == {"aten::_foreach_copy_": 2}  # of numbers, and of counts


def test_a_model_without_batch_norms_keeps_nothing() -> None:
    with Operations() as operations:
        for model in (nn.Linear(2, 2), nn.BatchNorm1d(4, track_running_stats=False)):
            statistics = Statistics(model)
            operations.counts.clear()
            statistics.keep()
            statistics.restore()
            assert not operations.counts


def test_the_copies_of_a_step_do_not_grow_with_the_batch_norms() -> None:
    copies = []
    for blocks in (1, 3):
        shape = small_config().encoder_conf.model_dump(exclude_defaults=True) | {
            "num_blocks": blocks
        }
        config = small_config(encoder_conf={**shape, "cnn_module_norm": "batch_norm"})
        engine = DdpEngine(build_model(config), config, CPU, seed=5)
        engine.connect()
        with Operations() as operations:
            engine.statistics.keep()
            copies.append(dict(operations.counts))
        assert engine.step([tiny_batch([90, 50], 1, tokens=3)], 1, {}).applied
    assert copies[0] == copies[1] == {"aten::_foreach_copy_": 2}
