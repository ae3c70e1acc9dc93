from dataclasses import replace

import pytest
import torch

from tests.dataset.chain.test_deferred import batch, examples, workers
from wenet_uio.config.dataset import DatasetConf, SpecAugConf, SpecSubConf, SpecTrimConf, ViewsConf
from wenet_uio.dataset.chain.augment import SpecAug, SpecSub, SpecTrim, TwoViews, augmentations
from wenet_uio.dataset.chain.padding import pad
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


TWO = ViewsConf(number=2, time_mask_ratio=2.5)
AUGMENTED = {"spec_sub": True, "spec_trim": True, "fbank_conf": {"num_mel_bins": 40, "dither": 1.0}}


def conf(**keys):
    return DatasetConf(**{"views": TWO, **AUGMENTED, **keys})


def test_the_views_have_other_masks_of_the_same_features():
    views = conf(spec_sub=False)
    found = batch(views, workers(examples([16000, 12345])))
    plain = batch(
        views.model_copy(update={"spec_aug": False, "views": ViewsConf()}),
        workers(examples([16000, 12345])),
    )
    assert found.feats.shape == found.other_feats.shape == plain.feats.shape
    kept, other_kept = found.feats != 0, found.other_feats != 0
    assert torch.equal(found.feats[kept], plain.feats[kept])
    assert torch.equal(found.other_feats[other_kept], plain.feats[other_kept])
    assert not torch.equal(kept, other_kept)


def test_two_views_have_more_masks_of_time():
    drawn = augmentations(conf(), training=True).spec_aug.draw(5, 1000, 40)
    assert [len(masks) for masks in drawn] == [5, 2]
    one_view = augmentations(DatasetConf(), training=True).spec_aug.draw(5, 1000, 40)
    assert [len(masks) for masks in one_view] == [2, 2]


def test_both_views_are_cut_alike():
    found = TwoViews((SpecTrim(conf().spec_trim_conf),))(
        Example("a", "", None, 16000, random=3, feats=torch.ones(90, 4), labels=(1,))
    )
    assert found.feats.shape == found.other_feats.shape
    assert len(found.feats) < 90


def test_evaluation_has_one_view():
    assert batch(conf(), workers(examples([16000])), training=False).other_feats is None


def test_views_computed_on_the_device_equal_those_of_the_workers():
    given = list(examples([16000, 5001, 23999]))
    expected = batch(conf(), workers(given))
    deferred = batch(conf(), given, defer_features=True)
    assert deferred.other_feats is None
    found = deferred.to("cpu")
    for name in ("feats", "other_feats"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-3, rtol=0)
        assert torch.equal(getattr(found, name) == 0, getattr(expected, name) == 0)


def test_rows_of_a_batch_have_both_views_cut_to_the_longest():
    part = batch(conf(), workers(examples([16000, 5001, 9999]))).rows(slice(1, 3))
    assert part.feats.shape == part.other_feats.shape
    assert part.feats.size(1) == int(part.feats_lengths.max())


def test_an_operator_that_gives_the_views_different_lengths_is_an_error():
    def cut(example):
        return replace(example, feats=example.feats[: 50 - example.view])

    given = Example("utt7", "", None, 16000, random=3, feats=torch.ones(90, 4))
    with pytest.raises(ValueError, match="utt7: its two views have 50 and 49 frames"):
        TwoViews((cut,))(given)


def test_a_batch_of_text_has_no_views():
    assert pad([Example("a", "b", None, 0, random=1, labels=(1,))], 40).other_feats is None
