"""Weights between the start of a fine-tuning and its end: which there are, and which is taken."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from wenet_uio.config.train import LoraConf
from wenet_uio.models.lora import merge_lora
from wenet_uio.scoring.wer import Counts
from wenet_uio.train.dev_set import Errors
from wenet_uio.train.interpolation import SHARES, Comparison, choose_share, weights_between


def model(seed: int, *, lora: bool = False, trained: bool = True) -> dict[str, torch.Tensor]:
    """Weights of two layers that are one tensor, of CTC, and a counter."""
    torch.manual_seed(seed)
    table = torch.randn(5, 4)
    weights = {"embed": table, "output": table, "q.weight": torch.randn(4, 4)}
    weights |= {"ctc.ctc_lo.weight": torch.randn(5, 4), "norm.count": torch.tensor(seed)}
    if lora:
        weights |= {"q.lora_A": torch.randn(2, 4), "q.lora_B": torch.randn(4, 2) * trained}
    return weights


def test_the_shares_0_and_1_are_the_start_and_the_end_and_others_are_on_the_line() -> None:
    start, end = model(1), model(2)
    for share in SHARES:
        mixed = weights_between(start, end, share)
        assert list(mixed) == list(end)
        for name in ("embed", "q.weight", "ctc.ctc_lo.weight"):
            expected = (1 - share) * start[name] + share * end[name]
            torch.testing.assert_close(mixed[name], expected)
            if share in (0, 1):
                assert torch.equal(mixed[name], (start, end)[int(share)][name])
        assert mixed["norm.count"].item() == 2
        assert mixed["embed"].data_ptr() == mixed["output"].data_ptr()


def test_weights_that_a_fine_tuning_kept_stay_as_they_are_bit_for_bit() -> None:
    start, end = model(1), model(2) | {"q.weight": model(1)["q.weight"]}
    for share in SHARES:
        assert torch.equal(weights_between(start, end, share)["q.weight"], start["q.weight"])


def test_the_product_of_low_rank_weights_is_scaled() -> None:
    conf = LoraConf(lora_rank=2, lora_alpha=8)
    start = model(1, lora=True, trained=False)
    end = {**start, "q.lora_A": torch.randn(2, 4), "q.lora_B": torch.randn(4, 2)}
    merged = {name: merge_lora(weights, conf) for name, weights in (("0", start), ("1", end))}
    for share in SHARES:
        mixed = merge_lora(weights_between(start, end, share), conf)
        expected = weights_between(merged["0"], merged["1"], share)
        torch.testing.assert_close(mixed["q.weight"], expected["q.weight"])


def test_a_new_ctc_layer_is_that_of_the_end_at_each_share() -> None:
    start, end = model(1), model(2)
    mixed = weights_between(start, end, 0.25, new_ctc=True)
    assert torch.equal(mixed["ctc.ctc_lo.weight"], end["ctc.ctc_lo.weight"])
    assert not torch.equal(mixed["q.weight"], end["q.weight"])


def test_weights_of_another_model_have_nothing_between_them() -> None:
    with pytest.raises(ValueError, match="names or shapes of the weights differ"):
        weights_between(model(1), model(2, lora=True), 0.5)


def errors(written: int, normalised: int) -> Errors:
    counts = [Counts(100 - number, number, 0, 0) for number in (written, normalised)]
    return Errors(*counts)


@pytest.mark.parametrize("seed", range(30))
def test_the_share_that_is_taken_is_never_worse_than_the_start_in_either_measure(seed) -> None:
    drawn = random.Random(seed)
    of_shares = {share: errors(drawn.randint(0, 9), drawn.randint(0, 9)) for share in SHARES}
    taken = of_shares[choose_share(of_shares)]
    start = of_shares[0.0]
    assert taken.written.errors <= start.written.errors
    assert taken.normalised.errors <= start.normalised.errors
    assert taken.total == min(each.total for each in of_shares.values() if not each.harms(start))


@pytest.mark.parametrize(
    ("of_shares", "expected"),
    [
        ([(11, 4), (10, 4), (9, 4), (9, 5), (8, 6)], 0.5),  # hearing gets worse beyond the middle
        ([(11, 4), (12, 3), (12, 2), (12, 1), (12, 0)], 0.0),  # writing gets worse
        ([(5, 5)] * 5, 1.0),  # nothing tells them apart: what was learned is kept
        ([(5, 5), (5, 4), (4, 5), (5, 5), (6, 0)], 0.5),
        ([(0, 0), (1, 0), (1, 0), (1, 0), (1, 0)], 0.0),
    ],
)
def test_both_measures_choose_the_share(of_shares, expected) -> None:
    named = dict(zip(SHARES, (errors(*pair) for pair in of_shares), strict=True))
    assert choose_share(named) == expected


def test_a_comparison_resumes_unless_it_compares_something_else(tmp_path: Path) -> None:
    path = tmp_path / "avg.shares.yaml"
    first = Comparison(path, {"weights": "a"})
    first.add(0.0, errors(9, 3))
    first.add(0.25, errors(8, 3))
    assert Comparison(path, {"weights": "a"}).errors == {0.0: errors(9, 3), 0.25: errors(8, 3)}
    assert Comparison(path, {"weights": "b"}).errors == {}
