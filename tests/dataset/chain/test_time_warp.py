"""Time warp of spec_aug: in the workers and on the device, the same in both views, and the
edges.
"""

import pytest
import torch

from tests.dataset.chain.test_deferred import batch, examples, workers
from wenet_uio.config.dataset import DatasetConf, SpecAugConf, ViewsConf
from wenet_uio.dataset.chain.augment import SpecAug, Warp, warped
from wenet_uio.dataset.types import Example

NO_MASKS = {"num_t_mask": 0, "num_f_mask": 0, "max_w": 20}


def rising(frames, seed=5):
    """Features that state the number of their frame."""
    return Example(
        "a", "", None, 16000, random=seed, feats=torch.arange(float(frames))[:, None].repeat(1, 4)
    )


def test_the_point_moves_and_the_ends_stay():
    found = warped(rising(100).feats[None], torch.tensor([Warp(40, 60, 100)]))[0, :, 0]
    assert [float(found[frame]) for frame in (0, 30, 60, 80)] == pytest.approx(
        [0, 20, 40, 70], abs=1e-4
    )
    assert (found.diff() >= 0).all()
    assert 98 <= found[-1] <= 99


def test_a_warp_keeps_the_shape_and_differs_between_samples():
    warp = SpecAug(SpecAugConf(**NO_MASKS), True)
    found = [warp(rising(100, seed)).feats for seed in range(20)]
    assert {tuple(feats.shape) for feats in found} == {(100, 4)}
    assert len({float(feats[50, 0]) for feats in found}) > 10
    assert torch.equal(warp(rising(100)).feats, warp(rising(100)).feats)
    assert all((feats[:, 0] - torch.arange(100.0)).abs().max() < 20 for feats in found)


@pytest.mark.parametrize("frames", [1, 2, 39, 40])
def test_a_short_utterance_stays_as_it_is(frames):
    given = rising(frames)
    assert torch.equal(SpecAug(SpecAugConf(**NO_MASKS), True)(given).feats, given.feats)


@pytest.mark.parametrize("max_w", [1, 2, 49])
def test_any_width_of_the_warp_is_possible(max_w):
    for seed in range(20):
        found = SpecAug(SpecAugConf(**{**NO_MASKS, "max_w": max_w}), True)(rising(99, seed)).feats
        assert found.isfinite().all()
        assert len(found) == 99


def test_masks_are_those_without_a_warp():
    masks = SpecAugConf(num_t_mask=2, max_w=20)
    ones = Example("a", "", None, 16000, random=5, feats=torch.ones(100, 80))
    warping = SpecAug(masks, True)
    assert torch.equal(warping(ones).feats, SpecAug(masks)(ones).feats)


@pytest.mark.parametrize("trim", [False, True])
def test_features_on_the_device_equal_those_of_the_workers(trim):
    conf = DatasetConf(time_warp=True, spec_aug_conf={"max_w": 20}, spec_sub=True, spec_trim=trim)
    given = list(examples([16000, 5001, 23999, 800, 12345]))
    expected = batch(conf, workers(given))
    found = batch(conf, given, defer_features=True).to("cpu")
    torch.testing.assert_close(found.feats, expected.feats, atol=1e-3, rtol=0)
    plain = batch(conf.model_copy(update={"time_warp": False}), workers(given))
    assert not torch.allclose(expected.feats, plain.feats, atol=0.1)


def test_both_views_have_the_same_warp():
    two = DatasetConf(
        spec_aug=False, time_warp=True, spec_aug_conf={"max_w": 20}, views=ViewsConf(number=2)
    )
    given = list(examples([16000, 12345]))
    for found in (batch(two, workers(given)), batch(two, given, defer_features=True).to("cpu")):
        assert torch.equal(found.feats, found.other_feats)
