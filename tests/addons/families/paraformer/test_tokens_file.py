"""The tokens.txt of a paraformer, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.addons.families.paraformer.export import paraformer_tokens
from wenet_uio.addons.families.paraformer.model import Paraformer
from wenet_uio.addons.families.paraformer.tokenizer import SegDictSplitter
from wenet_uio.config import parse_config
from wenet_uio.export.command import check_exportable
from wenet_uio.models import build_model
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

UNITS = {"<blank>": 0, "<sos>": 1, "<eos>": 2, "a@@": 3, "b": 4}


@pytest.fixture
def model() -> Paraformer:
    model = build_model(parse_config(tiny_paraformer(), "a.yaml"))
    assert isinstance(model, Paraformer)
    return model


@pytest.mark.parametrize(
    "splitter", [SegDictSplitter("unused"), CharSplitter(split_with_space=True)]
)
def test_the_end_of_an_utterance_has_the_name_that_sherpa_onnx_expects(
    model: Paraformer, splitter: Any
) -> None:
    assert (
        paraformer_tokens(Tokenizer(splitter, UNITS), model)
        == "<blank> 0\n<s> 1\n</s> 2\na@@ 3\nb 4\n"
    )


def test_units_that_are_letters_are_refused(model: Paraformer) -> None:
    with pytest.raises(
        ValueError, match="sherpa-onnx writes a space between the units of a paraformer"
    ):
        paraformer_tokens(Tokenizer(CharSplitter(), UNITS), model)


def test_another_model_with_a_sanm_encoder_has_no_export() -> None:
    values = {
        key: tiny_paraformer()[key]
        for key in ("encoder", "encoder_conf", "tokenizer_conf", "output_dim", "dataset_conf")
    }
    model = build_model(
        parse_config({**values, "decoder_conf": {"num_blocks": 1, "r_num_blocks": 1}}, "a.yaml")
    )
    with pytest.raises(
        ValueError, match="a model with a SANM encoder has no export, except those of"
    ):
        check_exportable(model)
