from dataclasses import replace

import pytest
import torch

from wenet_uio.config.dataset import DatasetConf, SpecAugConf, SpecSubConf, SpecTrimConf
from wenet_uio.dataset.chain.augment import SpecAug, SpecSub, SpecTrim, augmentations
from wenet_uio.dataset.types import Example

OPERATORS = [SpecAug(SpecAugConf()), SpecSub(SpecSubConf()), SpecTrim(SpecTrimConf())]


def example(random, frames=200):
    feats = torch.arange(1.0, frames + 1)[:, None] * torch.ones(80)
    return Example("a", "", None, 16000, random=random, feats=feats)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_same_seed_gives_the_same_features_and_leaves_the_input_alone(operator):
    given = example(5)
    before = given.feats.clone()
    first, second = operator(given), operator(given)
    assert torch.equal(first.feats, second.feats)
    assert torch.equal(given.feats, before)
    assert any(
        not torch.equal(operator(replace(given, random=seed)).feats, first.feats)
        for seed in range(6, 12)
    )


def test_spec_aug_blanks_at_most_what_its_masks_allow():
    for seed in range(50):
        blank = (
            SpecAug(SpecAugConf(num_t_mask=2, max_t=50, num_f_mask=2, max_f=10))(
                example(seed)
            ).feats
            == 0
        )
        assert 1 <= int(blank.all(dim=1).sum()) <= 100
        assert 1 <= int(blank.all(dim=0).sum()) <= 20


def test_spec_sub_only_copies_from_the_past():
    for seed in range(50):
        feats = SpecSub(SpecSubConf(max_t=30, num_t_sub=3))(example(seed)).feats[:, 0]
        original = torch.arange(1.0, 201.0)
        assert (feats <= original).all()
        assert int((feats != original).sum()) <= 90


def test_spec_trim_cuts_the_end_by_no_more_than_half():
    lengths = {len(SpecTrim(SpecTrimConf(max_t=20))(example(seed)).feats) for seed in range(100)}
    assert min(lengths) >= 180
    assert max(lengths) <= 199
    assert all(
        len(SpecTrim(SpecTrimConf(max_t=20))(example(seed, frames=6)).feats) > 3
        for seed in range(50)
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_single_frame_remains(operator):
    assert operator(example(1, frames=1)).feats.shape == (1, 80)


def test_only_training_augments_and_only_with_the_operators_that_are_on():
    conf = DatasetConf(spec_sub=True, spec_sub_conf={"max_t": 7})
    assert augmentations(conf, training=True) == (
        SpecAug(SpecAugConf()),
        SpecSub(SpecSubConf(max_t=7)),
        None,
    )
    assert augmentations(conf, training=False) == (None, None, None)


def test_an_example_without_features_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="utt1: no features; compute them before this operator"):
        OPERATORS[0](Example("utt1", "", torch.ones(9), 16000, random=1))
