"""Special tokens and blank of a train.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.vocabularies import write_tokenizer_json
from wenet_uio.config import parse_config
from wenet_uio.text.special_ids import blank_id, output_size, sos_and_eos, special_ids
from wenet_uio.text.tokenizer import build_tokenizer

UNITS = {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "a": 3}


def test_units_give_sos_and_eos_and_the_blank() -> None:
    config = parse_config({}, "test")
    assert special_ids(config.tokenizer_conf, UNITS, 4) == {"<sos>": 2, "<eos>": 2}
    assert blank_id(config, {"a": 0, "<blank>": 1}) == 1
    assert blank_id(config, {"a": 0}) == 0
    with pytest.raises(
        ValueError, match="ctc_conf.ctc_blank_id is 3, but <blank> is 0 in None; remove the key"
    ):
        blank_id(parse_config({"ctc_conf": {"ctc_blank_id": 3}}, "test"), UNITS)


def test_the_blank_of_a_tokenizer_without_blank_follows_its_tokens(tmp_path: Path) -> None:
    path = write_tokenizer_json(tmp_path / "tokenizer.json", ["it"])
    values = {"tokenizer": "huggingface", "tokenizer_conf": {"model_path": path}}
    config = parse_config(values, "test")
    symbols = build_tokenizer(config).symbols
    size = len(symbols)
    assert blank_id(config, symbols) == size
    assert output_size(config, symbols, size) == size + 2
    full = parse_config({**values, "output_dim": size}, "test")
    with pytest.raises(ValueError, match=rf"such as {size} with output_dim {size + 1}$"):
        blank_id(full, symbols)
    room = parse_config(
        {**values, "output_dim": size + 1, "ctc_conf": {"ctc_blank_id": size}}, "test"
    )
    assert (blank_id(room, symbols), output_size(room, symbols, size)) == (size, size + 1)
    assert sos_and_eos(room.tokenizer_conf, symbols, size + 1) == {"<sos>": size, "<eos>": size}
