from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from tests.support.train.stand_in import DEVICE, standing_in
from tests.support.train.tiny import ListLoader, tiny_batch, tiny_config, two_views
from wenet_uio.dataset.types import Batch, PairBatch
from wenet_uio.train.memory import SizeLimit
from wenet_uio.train.micro_batches import (
    emptied_batch,
    group_micro_batches,
    join_on_device,
    optimizer_steps,
)


def test_a_step_has_accum_grad_loader_steps_and_the_last_step_has_the_rest() -> None:
    batches = [tiny_batch([2], seed) for seed in range(6)]
    batches[1].closes_step = False
    assert [
        [batch.keys[0] for batch in step] for step in optimizer_steps(ListLoader(batches), 2)
    ] == [
        ["0-0", "1-0", "2-0"],
        ["3-0", "4-0"],
        ["5-0"],
    ]


def test_steps_take_a_batch_from_the_loader_only_when_it_is_needed() -> None:
    loader = ListLoader([tiny_batch([2], seed) for seed in range(5)])
    for number, _ in enumerate(optimizer_steps(loader, 2), 1):
        assert loader.state_dict() == (
            {"epoch": 0, "position": 2 * number} if number < 3 else {"epoch": 1, "position": 0}
        )
    assert loader.state_dict() == {"epoch": 1, "position": 0}


def utterances(batch: Batch) -> dict[str, tuple[list, list, list]]:
    """{key: (features, features of the second view, labels)}, without padding."""
    assert batch.other_feats is not None
    sizes = zip(
        batch.keys, batch.feats_lengths.tolist(), batch.target_lengths.tolist(), strict=True
    )
    return {
        key: (
            batch.feats[row, :frames].tolist(),
            batch.other_feats[row, :frames].tolist(),
            batch.target[row, :tokens].tolist(),
        )
        for row, (key, frames, tokens) in enumerate(sizes)
    }


def any_size(_: Sequence[Batch]) -> bool:
    return True


def test_an_accelerator_gets_the_micro_batches_of_a_step_joined_up_to_the_bound() -> None:
    lengths = ([9, 4], [12, 9, 2], [7], [30])
    batches = [
        two_views(tiny_batch(each, seed, tokens=seed + 1)) for seed, each in enumerate(lengths)
    ]
    batches = [
        replace(batch, texts=tuple(f"text of {key}" for key in batch.keys)) for batch in batches
    ]
    apart = [[batch] for batch in batches]
    assert (
        group_micro_batches(batches, torch.device("cpu"), 1000, any_size)
        == group_micro_batches(batches, DEVICE, 0, any_size)
        == apart
    )
    groups = group_micro_batches(batches, DEVICE, 6 * 12, any_size)
    assert groups == [batches[:3], batches[3:]]
    assert group_micro_batches(batches, DEVICE, 6 * 12 - 1, any_size) == [batches[:2], batches[2:]]
    assert group_micro_batches(batches, DEVICE, 7 * 30, any_size) == [batches]
    assert group_micro_batches(batches, DEVICE, 7 * 30, lambda group: len(group) < 3) == [
        batches[:2],
        batches[2:],
    ]
    with standing_in():
        large, alone = (join_on_device(DEVICE, group) for group in groups)
        assert large.feats.device == DEVICE
        large, alone = large.to("cpu"), alone.to("cpu")
    assert large.keys == ("1-0", "0-0", "1-1", "2-0", "0-1", "1-2")
    assert large.feats.shape[:2] == (6, 12)
    refusal = SizeLimit(tiny_config().dataset_conf).refusal(groups[0], 4, "CUDA out of memory")
    assert refusal.startswith("step 4: out of memory for 6 utterances of up to 12 frames and")
    assert refusal.endswith("lower join_micro_batches (CUDA out of memory)")
    assert large.texts == tuple(f"text of {key}" for key in large.keys)
    assert (large.seconds, large.planned) == (sum(batch.seconds for batch in batches[:3]), 6)
    assert utterances(large) == {
        key: each for batch in batches[:3] for key, each in utterances(batch).items()
    }
    assert large.feats[4, 4:].abs().sum() == 0
    assert (large.target[4, 1:] == -1).all()
    assert utterances(alone) == utterances(batches[3])


def test_texts_without_audio_stay_apart_and_an_empty_batch_costs_no_pass() -> None:
    audio, text = tiny_batch([9, 4], 1), tiny_batch([0, 0], 2)
    found = group_micro_batches(
        [audio, text, audio, emptied_batch(audio), audio, audio], DEVICE, 1000, any_size
    )
    assert [sum(map(len, group)) for group in found] == [2, 2, 6]


def test_an_emptied_batch_has_nothing_of_its_utterances() -> None:
    batch = replace(tiny_batch([9, 4], 1), extra=({"lang": "en"}, {}), seconds=1.3)
    labels = {"source": batch.target, "source_lengths": batch.target_lengths}
    pairs = PairBatch(**vars(batch), **labels)
    for full in (batch, pairs):
        empty = emptied_batch(full)
        assert type(empty) is type(full)
        assert (empty.keys, empty.texts, empty.extra, empty.seconds) == ((), (), (), 0.0)
        tensors = {name: getattr(empty, name) for name in empty.TENSORS}
        assert {len(tensor) for tensor in tensors.values() if tensor is not None} == {0}
        assert tensors["feats"].shape[1:] == full.feats.shape[1:]
