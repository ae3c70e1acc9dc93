"""Utterances whose labels have no path of CTC are left out by name, and no others."""

import numpy as np
import pytest
import torch
from torch.nn.functional import ctc_loss

from tests.support.data.loading import assert_left_out, loader
from wenet_uio.dataset.chain.tokens import (
    NO_CTC_PATH,
    TOO_MANY_TOKENS,
    CtcFrames,
    frames_needed,
)


@pytest.mark.parametrize(
    ("labels", "needed"),
    [((), 0), ((7,), 1), ((7, 7), 3), ((7, 8, 7), 3), ((7, 7, 7), 5), ((1, 1, 2, 2), 6)],
)
def test_a_path_has_a_frame_for_each_label_and_a_blank_between_equal_ones(labels, needed):
    assert frames_needed(labels) == needed


@pytest.mark.parametrize("seed", range(40))
def test_there_is_a_path_where_the_loss_is_finite(seed):
    random = np.random.default_rng(seed)
    labels = random.integers(1, 3, random.integers(1, 8)).tolist()
    log_probs = torch.zeros(12, 1, 3).log_softmax(2)
    for frames in range(1, 13):
        loss = ctc_loss(
            log_probs, torch.tensor([labels]), torch.tensor([frames]), torch.tensor([len(labels)])
        )
        assert bool(loss.isfinite()) == (frames_needed(labels) <= frames)


def test_an_utterance_longer_than_the_table_has_a_path():
    frames = CtcFrames(np.arange(10))
    assert frames.obstacle(range(30), 9) is not None
    assert frames.obstacle(range(30), 10) is None


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("defer_features", [True, False])
@pytest.mark.parametrize("form", ["raw", "shard"])
def test_exactly_the_utterances_without_a_path_are_left_out_and_counted(
    make_lists, training, defer_features, form
):
    data_list = make_lists(24)[form]
    conf = {"speed_perturb": False, "spec_trim": False}
    every = list(loader(data_list, form, training, conf))
    texts = {
        key: text for batch in every for key, text in zip(batch.keys, batch.texts, strict=True)
    }
    lengths = {
        key: int(length)
        for batch in every
        for key, length in zip(batch.keys, batch.feats_lengths, strict=True)
    }
    # Half of them have a path.
    ratio = int(np.median([lengths[key] / frames_needed(texts[key]) for key in texts]))
    frames = CtcFrames(np.arange(4000) // ratio)
    expected = {key for key in texts if frames_needed(texts[key]) > lengths[key] // ratio}
    assert 4 < len(expected) < 20

    checked = loader(
        data_list, form, training, conf, ctc_frames=frames, defer_features=defer_features
    )
    assert_left_out(checked, expected, NO_CTC_PATH, of=set(texts))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("defer_features", [True, False])
@pytest.mark.parametrize("form", ["raw", "shard"])
def test_exactly_the_utterances_with_more_labels_are_left_out_and_counted(
    make_lists, training, defer_features, form
):
    data_list = make_lists(24)[form]
    conf = {"speed_perturb": False, "spec_trim": False}
    every = list(loader(data_list, form, training, conf))
    labels = {
        key: int(length)
        for batch in every
        for key, length in zip(batch.keys, batch.target_lengths, strict=True)
    }
    most = sorted(labels.values())[12]
    expected = {key for key, length in labels.items() if length > most}
    assert 0 < len(expected) < 24

    checked = loader(
        data_list, form, training, conf, most_labels=most, defer_features=defer_features
    )
    assert_left_out(checked, expected, TOO_MANY_TOKENS, of=set(labels))
