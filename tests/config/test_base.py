"""Messages about bad keys and values."""

from __future__ import annotations

from typing import Any

import pytest

from wenet_uio.config.base import ConfigError, Section, parse
from wenet_uio.config.config import Config
from wenet_uio.config.mixture import MixtureConf


def message_of(section: type[Section], values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(section, values, "a.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("max_bad_ratio", "it belongs to dataset_conf"),
        ("max_epocs", "did you mean 'max_epoch'?"),
        ("zzz", "known: accum_grad, "),
        ("dataset_conf.max_epoch", "it belongs to the top level"),
        ("dataset_conf.fbank_cnf", "did you mean 'fbank_conf'?"),
    ],
)
def test_an_unknown_key_is_told_its_section_or_the_nearest_name(key, hint):
    section, _, name = key.rpartition(".")
    values = {section: {name: 1}} if section else {name: 1}
    assert f"{key}: unknown key; {hint}" in message_of(Config, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_epoch": "many"}, "max_epoch: expected an integer, found 'many'"),
        ({"use_amp": "Flase"}, "use_amp: expected a boolean, found 'Flase'"),
        ({"max_epoch": 0}, "max_epoch: expected a number greater than 0, found 0"),
        # a value of several types: one problem, for the type that fits best
        ({"optim_conf": {"lr": "x"}}, "optim_conf.lr: expected a number or a list, found 'x'"),
        ({"optim_conf": {"lr": [0.1, "x"]}}, "optim_conf.lr.1: expected a number, found 'x'"),
        ({"tracker": "wandb"}, "tracker: expected a list, found 'wandb'"),
        (
            {"dtype": "bf61"},
            "dtype: expected 'fp32', 'bf16', 'fp16' or 'auto', found 'bf61'; did you mean 'bf16'?",
        ),
    ],
)
def test_a_wrong_value_is_one_problem_without_names_of_types(values, message):
    assert message_of(Config, values) == f"a.yaml: {message}"


@pytest.mark.parametrize("wrong", ["x", [1, 2], {"a": 1}, None, -7, 1.5, True])
def test_no_message_of_a_top_level_key_has_words_of_pydantic(wrong):
    for key in Config.model_fields:
        try:
            parse(Config, {key: wrong}, "a.yaml")
        except ConfigError as error:
            for word in ("Input should", "Value error", "unable to", "valid ", "NoneType", "Conf."):
                assert word not in str(error), error


def test_the_only_source_that_is_bad_is_one_problem():
    message = message_of(MixtureConf, {"sources": [{"type": "raw"}]})
    assert message.startswith("a.yaml: sources.0: a source of type raw needs data_list")


def test_an_empty_list_of_sources_is_a_problem():
    assert message_of(MixtureConf, {"sources": []}).startswith("a.yaml: sources: ")


def test_a_problem_of_a_whole_file_has_no_empty_path():
    sources = [{"type": "raw", "data_list": "a", "weight": 1}, {"type": "raw", "data_list": "b"}]
    assert message_of(MixtureConf, {"sources": sources}).startswith("a.yaml: 1 of 2 sources")
