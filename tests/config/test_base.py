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
    ],
)
def test_an_unknown_key_is_told_its_section_or_the_nearest_name(key, hint):
    assert f"{key}: unknown key; {hint}" in message_of(Config, {key: 1})


def test_the_only_source_that_is_bad_is_one_problem():
    message = message_of(MixtureConf, {"sources": [{"type": "raw"}]})
    assert message.startswith(
        "a.yaml: sources.0: Value error, a source of type raw needs data_list"
    )


def test_an_empty_list_of_sources_is_a_problem():
    assert message_of(MixtureConf, {"sources": []}).startswith("a.yaml: sources: ")


def test_a_problem_of_a_whole_file_has_no_empty_path():
    sources = [{"type": "raw", "data_list": "a", "weight": 1}, {"type": "raw", "data_list": "b"}]
    assert message_of(MixtureConf, {"sources": sources}).startswith(
        "a.yaml: Value error, 1 of 2 sources"
    )
