from __future__ import annotations

import mmap

import pytest
import torch

from tests.support.train.tiny import small_config
from wenet_uio.dataset.plan.duration_bins import Shape
from wenet_uio.train.batch_size import LargestBatch, cpu_trial, largest_batch, limited_process

MB = 1_000_000


def trial_with_room(room: int, tried: list[int]):
    def trial(shape: Shape, utterances: int) -> int | None:
        tried.append(utterances)
        return utterances * shape.frames if utterances * shape.frames <= room else None

    return trial


@pytest.mark.parametrize("room", [1, 2, 3, 9, 100, 777])
def test_the_batch_found_fits_and_5_percent_more_does_not(room: int) -> None:
    tried: list[int] = []
    found = largest_batch(trial_with_room(room * 10, tried), Shape(10_000, 10, 1), 1)
    assert 0.95 * room <= found.utterances <= room
    assert found.peak == found.utterances * 10
    assert len(tried) == len(set(tried)) < 20


def test_no_batch_has_more_utterances_than_the_bucket() -> None:
    tried: list[int] = []
    assert largest_batch(trial_with_room(10**9, tried), Shape(13, 10, 1), 8) == LargestBatch(
        13, 130
    )
    assert tried == [8, 13]


def test_a_start_that_is_too_large_is_bisected() -> None:
    assert largest_batch(trial_with_room(50, []), Shape(100, 10, 1), 64).utterances == 5
    assert largest_batch(trial_with_room(5, []), Shape(100, 10, 1), 64) is None


def test_running_out_of_memory_ends_only_the_limited_process() -> None:
    def touch(megabytes: int) -> None:
        # Not by malloc, which would first take what the process of the tests has freed.
        try:
            memory = mmap.mmap(-1, megabytes * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError from error
        torch.frombuffer(memory, dtype=torch.uint8).fill_(1)

    base = limited_process(lambda: touch(1), 4000 * MB)
    peak = limited_process(lambda: touch(200), base + 300 * MB)
    assert base + 190 * MB < peak < base + 230 * MB
    assert limited_process(lambda: touch(400), base + 300 * MB) is None
    # More than malloc keeps of what it frees, see wenet_uio.base.memory.
    assert limited_process(lambda: torch.ones(2000 * MB // 4), base + 300 * MB) is None


def test_other_failures_of_the_limited_process_are_raised() -> None:
    def fail() -> None:
        raise KeyError("no such thing")

    with pytest.raises(RuntimeError, match="KeyError: 'no such thing'"):
        limited_process(fail, 4000 * MB)


def test_trials_train_the_model_and_ddp_takes_more_memory() -> None:
    config = small_config(vocab_size=5)
    base = limited_process(lambda: None, 4000 * MB)
    alone, beside = (
        cpu_trial(config, base + 1000 * MB, with_ddp=ddp)(Shape(50, 200, 5), 4)
        for ddp in (False, True)
    )
    assert base < alone < base + 900 * MB
    assert beside is not None
    assert cpu_trial(config, base + 300 * MB, with_ddp=False)(Shape(9999, 2000, 50), 500) is None
