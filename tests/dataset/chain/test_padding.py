from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.types import Example


def example(key, frames, labels):
    return Example(
        key, key, None, 16000, random=0, feats=torch.full((frames, 4), 2.0), labels=labels
    )


def test_examples_are_padded_longest_first():
    batch = pad([example("short", 2, (1, 2, 3)), example("long", 5, (4,))], feature_dim=4)
    assert batch.keys == batch.texts == ("long", "short")
    assert batch.feats.shape == (2, 5, 4)
    assert batch.feats[1, 2:].abs().sum() == 0
    assert batch.feats_lengths.tolist() == [5, 2]
    assert batch.target.tolist() == [[4, -1, -1], [1, 2, 3]]
    assert batch.target_lengths.tolist() == [1, 3]


def test_no_examples_make_an_empty_batch():
    batch = pad([], feature_dim=4)
    assert len(batch) == 0
    assert batch.feats.shape == (0, 0, 4)


@pytest.mark.parametrize("order", [(30, 20, 10), (20, 30, 10), (10, 20)])
def test_audio_and_stored_features_in_one_batch_are_named_one_of_each(order):
    deferred = {
        frames: replace(example(f"audio-{frames}", 0, ()), deferred=SimpleNamespace(frames=frames))
        for frames in (30, 10)
    }
    rows = {**deferred, 20: example("stored", 20, ())}
    with pytest.raises(ValueError, match=r"of audio-\d+ and stored\) need feature_device: worker"):
        pad([rows[frames] for frames in order], feature_dim=4)
