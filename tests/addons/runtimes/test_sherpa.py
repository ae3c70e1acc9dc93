"""tokens.txt and feature settings of sherpa-onnx."""

from __future__ import annotations

import pytest

from wenet_uio.addons.runtimes.sherpa import feature_differences, tokens_file
from wenet_uio.config.dataset import DatasetConf, FbankConf
from wenet_uio.text.aggregate import AggregateTokenizer
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

UNITS = {"<blank>": 0, "b": 2, "a": 1}


def test_tokens_are_in_the_order_of_their_ids():
    assert tokens_file(Tokenizer(CharSplitter(), UNITS), blank=0) == "<blank> 0\na 1\nb 2\n"


def test_words_start_with_the_sign_of_a_space():
    words = Tokenizer(CharSplitter(split_with_space=True), UNITS)
    assert tokens_file(words, blank=0) == "<blank> 0\n▁a 1\n▁b 2\n"


def test_a_blank_with_another_name_is_refused():
    with pytest.raises(ValueError, match="unit 2 is 'b'"):
        tokens_file(Tokenizer(CharSplitter(), UNITS), blank=2)


def test_settings_that_change_features_are_listed():
    assert feature_differences(DatasetConf()) == [
        "fbank_conf.high_freq: 0.0, -400.0 in sherpa-onnx",
        "fbank_conf.snip_edges: True, False in sherpa-onnx",
    ]
    same = FbankConf(num_mel_bins=80, dither=0.1, high_freq=-400, snip_edges=False)
    assert feature_differences(DatasetConf(fbank_conf=same)) == []
    assert feature_differences(DatasetConf(feats_type="mfcc")) == [
        "feats_type: mfcc, fbank in sherpa-onnx"
    ]


def test_the_units_of_an_aggregate_are_refused():
    aggregate = AggregateTokenizer({"en": Tokenizer(CharSplitter(), UNITS)})
    with pytest.raises(ValueError, match="cannot hold the units of an aggregate"):
        tokens_file(aggregate, blank=aggregate.symbols["<blank>"])
