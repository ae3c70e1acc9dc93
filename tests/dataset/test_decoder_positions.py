"""Utterances that a decoder has too few positions for are left out by name, and no others."""

import pytest

from tests.support.data.loading import assert_left_out, loader
from wenet_uio.dataset.decoder_positions import TOO_MANY_TOKENS


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
