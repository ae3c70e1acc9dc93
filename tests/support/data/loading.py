"""Loaders of small lists, for the tests of the loader."""

import torch

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

TOKENIZER = Tokenizer(
    CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3, "b": 4, "c": 5}
)
CONF = {
    "speed_perturb": True,
    "spec_sub": True,
    "spec_trim": True,
    "fbank_conf": {"num_mel_bins": 20, "dither": 1.0},
    "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 400},
}


class FakeConfig:
    def __init__(self, **conf):
        self.dataset_conf = DatasetConf(**{**CONF, **conf})


def loader(data_list, data_type, training=True, conf=None, empty_batches=True, **options):
    return build_loader(
        data_list,
        data_type,
        FakeConfig(**(conf or {})),
        TOKENIZER,
        training=training,
        options=LoaderOptions(empty_batches=empty_batches, **options),
    )


def same(left, right):
    return (
        left.keys == right.keys
        and torch.equal(left.feats, right.feats)
        and torch.equal(left.target, right.target)
        and left.closes_step == right.closes_step
    )


def assert_left_out(batches, keys, reason, *, of):
    """Check that batches name these utterances as filtered for a reason, and have all others `of`."""
    batches = list(batches)
    skipped = [sample for batch in batches for sample in batch.skipped]
    assert {sample.key for sample in skipped} == keys
    assert {(sample.reason, sample.filtered) for sample in skipped} == {(reason, True)}
    assert {key for batch in batches for key in batch.keys} == of - keys
