from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.train.tiny import tiny_batch
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.deferred import Defer
from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.types import Example, waveform_of


def test_rows_of_a_batch_are_padded_to_their_own_longest() -> None:
    batch = tiny_batch([9, 7, 4], seed=1, tokens=3)
    first, rest = batch.rows(slice(1)), batch.rows(slice(1, None))
    assert (first.keys, rest.keys) == (("1-0",), ("1-1", "1-2"))
    assert (first.feats.shape[:2], rest.feats.shape[:2]) == ((1, 9), (2, 7))
    assert (first.target.shape, rest.target.shape) == ((1, 1), (2, 3))
    assert torch.equal(rest.feats, batch.feats[1:, :7])
    assert (first.planned, rest.planned) == (1, 2)
    assert first.seconds + rest.seconds == batch.seconds


def test_a_batch_with_deferred_features_survives_pickling() -> None:
    defer = Defer.of(DatasetConf(), training=True)
    batch = pad(
        [defer(Example("a", "x", torch.arange(900.0), 16000, random=3, labels=(1, 2)))],
        feature_dim=23,
    )
    found = pickle.loads(pickle.dumps(batch))
    assert (found.keys, found.texts) == (batch.keys, batch.texts)
    assert torch.equal(found.target, batch.target)
    assert found.deferred.tensors().keys() == batch.deferred.tensors().keys()
    assert torch.equal(found.to("cpu").feats, batch.to("cpu").feats)
    assert found.to("cpu").feats.shape == (1, int(batch.feats_lengths), found.deferred.dim)


def test_an_example_without_waveform_is_an_error_that_names_it() -> None:
    example = Example("utt1", "text", torch.ones(3), 16000, random=0)
    assert waveform_of(example) is example.waveform
    with pytest.raises(ValueError, match="utt1: no waveform; it is text without audio"):
        waveform_of(replace(example, waveform=None))


def test_types_import_neither_torch_nor_the_chain() -> None:
    code = (
        "import sys, wenet_uio.dataset.types; "
        "sys.exit('torch' in sys.modules or any(name.startswith('wenet_uio.dataset.chain') for "
        "name in sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
    )
