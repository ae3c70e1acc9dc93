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
