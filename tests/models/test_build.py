"""Config -> model: vocabulary, special tokens, invalid values."""

from __future__ import annotations

import pytest

from wenet_uio.config import ConfigError, parse_config
from wenet_uio.models import build_model

TINY = {"output_size": 8, "attention_heads": 2, "linear_units": 8, "num_blocks": 1}


def build(**values):
    return build_model(parse_config({"encoder_conf": TINY, "input_dim": 40, **values}, "test"))


def units(folder, text):
    path = folder / "units.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_sos_and_eos_are_the_special_tokens_of_the_config():
    model = build(output_dim=9, tokenizer_conf={"special_tokens": {"<sos>": 3, "<eos>": 4}})
    assert (model.vocab_size, model.sos, model.eos) == (9, 3, 4)


def test_sos_and_eos_are_found_in_the_vocabulary(tmp_path):
    path = units(tmp_path, "<blank> 0\n<unk> 1\n<sos/eos> 2\na 3\nb 4\n")
    model = build(tokenizer_conf={"symbol_table_path": path})
    assert (model.vocab_size, model.sos, model.eos) == (5, 2, 2)


def test_sos_and_eos_are_the_last_unit_without_special_tokens_and_sos_eos_unit(tmp_path):
    path = units(tmp_path, "<blank> 0\n<unk> 1\na 2\nb 3\n")
    model = build(tokenizer_conf={"symbol_table_path": path})
    assert (model.vocab_size, model.sos, model.eos) == (4, 3, 3)


def test_tokens_outside_of_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="<eos> 9 is outside of the vocabulary of 9"):
        build(output_dim=9, tokenizer_conf={"special_tokens": {"<sos>": 3, "<eos>": 9}})


def test_too_few_mel_bins_are_refused():
    with pytest.raises(ValueError, match="input_dim 5 is too narrow"):
        build(
            output_dim=9, input_dim=5, tokenizer_conf={"special_tokens": {"<sos>": 8, "<eos>": 8}}
        )


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (
            "encoder_conf",
            {"output_size": 30, "attention_heads": 4},
            "output_size 30 is not divisible",
        ),
        ("encoder_conf", {"cnn_module_kernel": 8}, "cnn_module_kernel 8 is even"),
        ("encoder_conf", {"use_dynamic_chunk": True, "static_chunk_size": 4}, "exclude each other"),
        ("encoder_conf", {"use_dynamic_left_chunk": True}, "needs use_dynamic_chunk"),
        ("encoder_conf", {"num_block": 3}, "did you mean 'num_blocks'"),
        ("encoder_conf", {"dropout_rate": 1.5}, "encoder_conf.dropout_rate"),
        ("decoder_conf", {"r_num_block": 3}, "did you mean 'r_num_blocks'"),
        ("model_conf", {"ctc_weight": 1.3}, "model_conf.ctc_weight"),
        ("model_conf", {"ctc_weigth": 0.3}, "did you mean 'ctc_weight'"),
    ],
)
def test_invalid_values_are_refused(section, values, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({section: values}, "test.yaml")


def test_an_unknown_encoder_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'conformer'"):
        parse_config({"encoder": "conformr"}, "test.yaml")


def test_heads_of_the_decoder_must_divide_the_width_of_the_encoder():
    with pytest.raises(
        ValueError, match=r"output_size 8 is not divisible by decoder_conf\.attention_heads 3"
    ):
        build(
            output_dim=9,
            decoder_conf={"attention_heads": 3},
            tokenizer_conf={"special_tokens": {"<sos>": 8, "<eos>": 8}},
        )


def test_missing_cmvn_file_names_its_key():
    with pytest.raises(ValueError, match=r"cmvn_conf\.cmvn_file is missing"):
        build(
            output_dim=9,
            cmvn="global_cmvn",
            tokenizer_conf={"special_tokens": {"<sos>": 8, "<eos>": 8}},
        )
