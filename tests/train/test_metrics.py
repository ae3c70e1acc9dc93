from __future__ import annotations

import pytest
import torch

from tests.support.train.tiny import tiny_batch
from wenet_uio.train.metrics import Totals, cost_bin, count_batches, loss_sums


def test_count_sums_the_sizes_of_micro_batches() -> None:
    counted = count_batches([tiny_batch([5, 3], 1), tiny_batch([], 2), tiny_batch([4], 3)])
    expected = {
        "utterances": 3,
        "texts": 0,
        "tokens": 6,
        "seconds": 0.12,
        "frames": 12,
        "padded_frames": 14,
    }
    assert counted == pytest.approx(expected)


@pytest.mark.parametrize("lengths", [[1], [5, 3], [999] * 7, [1000] * 32, [0, 0, 0]])
def test_the_bin_of_a_batch_holds_its_padded_frames_or_padded_tokens(lengths: list[int]) -> None:
    number = cost_bin(tiny_batch(lengths, 1, tokens=2))
    padded = max(lengths) * len(lengths) or 2 * len(lengths)
    assert 2 ** (number / 8) <= padded < 2 ** ((number + 1) / 8)


def test_text_without_audio_does_not_count_in_the_mean_ctc_loss() -> None:
    heard, text = tiny_batch([5, 3], 1), tiny_batch([0, 0, 0], 2)
    names = ("loss", "loss_att", "loss_ctc")
    totals = Totals()
    for batch, losses in ((heard, (3.0, 1.0, 2.0)), (text, (1.0, 1.0, None))):
        named = {
            name: None if x is None else torch.tensor(x)
            for name, x in zip(names, losses, strict=True)
        }
        totals.add(
            count_batches([batch])
            | dict(zip(names, loss_sums(named, batch, names, ()).tolist(), strict=True))
        )
    assert totals.losses() == pytest.approx(
        {"loss": (2 * 3 + 3) / 5, "loss_att": 1.0, "loss_ctc": 2.0}
    )


def test_losses_weigh_by_utterances_and_accuracy_by_tokens_with_the_end_of_each_utterance() -> None:
    batch = tiny_batch([5, 3, 1], 1)
    batch.target_lengths = torch.tensor([4, 2, 1])
    losses = {"loss": torch.tensor(2.0), "th_accuracy": torch.tensor(0.5)}
    assert loss_sums(losses, batch, ("loss", "th_accuracy"), {"th_accuracy"}).tolist() == [6.0, 5.0]


def test_totals_give_means_and_throughput_of_all_ranks() -> None:
    totals = Totals()
    for _ in range(2):
        totals.add({"utterances": 2, "tokens": 8, "loss": 3.0, "th_accuracy": 4.0})
        totals.add({"seconds": 20.0, "frames": 9, "padded_frames": 10, "wait": 1.0, "elapsed": 8.0})
    assert totals.losses() == {"loss": 1.5, "th_accuracy": 0.5}
    throughput = totals.throughput(ranks=2)
    assert throughput == pytest.approx(
        {"audio_seconds_per_second": 5.0, "data_wait": 0.125, "padding": 0.1}
    )
