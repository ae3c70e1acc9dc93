"""WeNet's configs load here, and our train.yaml loads in WeNet."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.data.wenet_reader import WenetReader
from wenet_uio.base.messages import said_once
from wenet_uio.config import Config, ConfigError, load_config, parse_config, save_config
from wenet_uio.config.choices import CHOICES
from wenet_uio.config.wenet import LATE_KEYS, OTHER_PARTS, OWN_KEYS
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models import build_model

CONFS = sorted((Path(os.environ.get("WENET_UIO_GOLDEN2", "absent")) / "confs").glob("*.yaml"))


def test_the_configs_are_those_of_wenet(golden2: Path) -> None:
    today = [path for path in CONFS if not path.name.startswith("old_style")]
    assert (len(today), len(CONFS)) == (67, 70)


@pytest.mark.third
@pytest.mark.parametrize("path", CONFS, ids=lambda path: path.stem)
def test_a_config_of_wenet_loads_and_builds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for draw in ("uniform_", "normal_"):  # of no values, but slowly
        monkeypatch.setattr(torch.Tensor, draw, lambda self, *args, **kwargs: self)
    config = load_config(path)
    labels = {"<sos>": 2, "<eos>": 2} | (config.tokenizer_conf.special_tokens or {})
    size = config.vocabulary_size or (None if config.model == "whisper" else 100)
    special = config.tokenizer_conf.model_copy(update={"special_tokens": labels})
    with torch.device("meta"):
        build_model(
            config.model_copy(update={"cmvn": None, "output_dim": size, "tokenizer_conf": special})
        )
    assert config.feature_dim == config.dataset_conf.feature_dim


@pytest.mark.parametrize("name", OTHER_PARTS["model"])
def test_a_model_of_wenet_that_does_not_exist_here_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^a.yaml: WeNet's parts that do not exist here: model: {name} "
    ) as caught:
        parse_config(
            {"model": name, "encoder": "sanm_encoder", "encoder_conf": {"unknown": 1}}, "a.yaml"
        )
    assert "\n" not in str(caught.value)


def test_a_model_of_2021_has_its_features_filters_and_batches(golden2: Path) -> None:
    config = load_config(golden2 / "confs/old_style_2021.yaml")
    data = config.dataset_conf
    assert (data.fbank_conf.num_mel_bins, data.fbank_conf.dither, data.speed_perturb) == (
        80,
        1.0,
        True,
    )
    assert (data.filter_conf.max_length, data.filter_conf.min_length) == (40960, 0)
    assert (data.batch_conf.batch_type, data.batch_conf.batch_size, data.spec_aug_conf.max_w) == (
        "static",
        16,
        80,
    )


def test_a_key_of_2021_beside_the_sections_of_today_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"dataset_conf.batch_size: unknown key"):
        parse_config({"dataset_conf": {"batch_size": 4, "batch_conf": {"batch_size": 3}}}, "a.yaml")


@pytest.mark.parametrize(
    "collate", [None, "x", {"spec_aug_conf": None, "feature_extraction_conf": 3}]
)
def test_a_damaged_section_of_2021_is_passed_over(collate: Any) -> None:
    data = parse_config(
        {"dataset_conf": {"max_length": 70}, "collate_conf": collate}, "a.yaml"
    ).dataset_conf
    assert data.filter_conf.max_length == 70


@pytest.mark.parametrize("year", [2021, 2022, 2023])
def test_cmvn_at_the_top_of_old_files_is_used(golden2: Path, year: int) -> None:
    config = load_config(golden2 / f"confs/old_style_{year}.yaml")
    assert config.cmvn == "global_cmvn"
    assert str(config.cmvn_conf.cmvn_file).endswith("global_cmvn")
    assert config.cmvn_conf.is_json_cmvn


def test_a_model_of_2022_without_tokenizer_takes_the_units_beside_it_and_the_last_id(
    golden2: Path, tmp_path: Path
) -> None:
    (tmp_path / "units.txt").write_text("<blank> 0\n<unk> 1\n<sos/eos> 2\na 3\n")
    text = (golden2 / "confs/old_style_2022.yaml").read_text(encoding="utf-8")
    (tmp_path / "train.yaml").write_text(text)
    conf = load_config(tmp_path / "train.yaml", of_model=True).tokenizer_conf
    assert conf.symbol_table_path == str(tmp_path / "units.txt")
    assert conf.special_tokens == {"<sos>": 4232, "<eos>": 4232}
    (tmp_path / "train.yaml").write_text(
        text.replace("cmvn_file: data/train/global_cmvn", "cmvn_file: null")
    )
    assert load_config(tmp_path / "train.yaml", of_model=True).cmvn is None


def test_special_tokens_of_our_own_old_runs_stay_those_of_the_units_file(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("output_dim: 9\ntokenizer_conf: {special_tokens: null}\n")
    assert load_config(tmp_path / "train.yaml", of_model=True).tokenizer_conf.special_tokens is None
    (tmp_path / "train.yaml").write_text("output_dim: 9\n")
    assert load_config(tmp_path / "train.yaml").tokenizer_conf.special_tokens is None


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (
            {"collate_conf": {"spec_aug": True}, "raw_wav": False, "lfmmi_dir": ""},
            "collate_conf, raw_wav, lfmmi_dir",
        ),
        ({"dataset_conf": {"syncbn": True, "speaker_conf": {}}}, "dataset_conf.syncbn, "),
        (
            {"dataset_conf": {"speaker_conf": {"speaker_table_path": "x"}}},
            "dataset_conf.speaker_conf",
        ),
        ({"tokenizer_conf": {"connect_symbol": " "}}, "tokenizer_conf.connect_symbol"),
        (
            {"tokenizer_conf": {}, "dataset_conf": {"split_with_space": True}},
            "dataset_conf.split_with_space",
        ),
    ],
)
def test_keys_without_effect_are_taken_with_one_line(
    values: dict[str, Any], names: str, caplog: pytest.LogCaptureFixture
) -> None:
    said_once.clear()
    assert parse_config(values, "a.yaml").model_dump() == parse_config({}, "b.yaml").model_dump()
    assert [record.getMessage() for record in caplog.records if names in record.getMessage()] == [
        caplog.messages[0]
    ]
    assert caplog.messages[0].startswith("a.yaml: keys of WeNet that change nothing here: ")
    assert len(caplog.messages) == 1


def test_the_line_comes_once_though_commands_read_the_yaml_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.yaml").write_text("raw_wav: true\n")
    for _ in range(2):
        load_config(tmp_path / "a.yaml")
    assert len(caplog.messages) == 1


def test_split_with_space_counts_where_there_is_no_tokenizer_conf(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse_config(
        {"dataset_conf": {"split_with_space": True}}, "a.yaml"
    ).tokenizer_conf.split_with_space
    assert caplog.messages == []


@pytest.mark.parametrize(
    "keys",
    [
        {
            "encoder_conf": {
                "mlp_type": "position_wise_feed_forward",
                "layer_norm_type": "layer_norm",
            }
        },
        {
            "encoder_conf": {
                "final_norm": True,
                "conv_inner_factor": 2,
                "static_chunk_size": -1,
                "n_kv_head": None,
            }
        },
        {"decoder_conf": {"input_layer": "embed", "src_attention": True, "use_output_layer": True}},
        {"model_conf": {"apply_non_blank_embedding": False}},
        {"encoder": "squeezeformer", "encoder_conf": {"concat_after": False}},
        {"cmvn_conf": {"cmvn_file": None, "is_json_cmvn": None}},
    ],
)
def test_names_of_what_is_always_so_here_are_taken(
    keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    parse_config(keys, "a.yaml")
    assert caplog.messages == []


def test_other_values_of_these_keys_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^a.yaml: decoder_conf.src_attention: .*found False$"):
        parse_config({"decoder_conf": {"src_attention": False}}, "a.yaml")


def kwargs(golden2: Path) -> dict[str, Any]:
    return read_yaml(golden2 / "wenet_kwargs.yaml")


def test_sections_have_all_keys_of_wenets_functions_and_the_table_has_all_others(
    golden2: Path,
) -> None:
    functions = kwargs(golden2)["dataset_conf"]["given_to_functions"]
    data = Config().dataset_conf
    own = {
        inner: set(type(getattr(data, inner)).model_fields) - set(functions[inner])
        for inner in functions
        if hasattr(data, inner)
    }
    assert {name: keys for name, keys in own.items() if keys} == {
        path[1]: set(names) for path, names in OWN_KEYS.items() if path[0] == "dataset_conf"
    }
    for part in ("encoder", "decoder", "predictor", "joint", "model"):
        for name, keywords in kwargs(golden2)["model"][f"{part}_conf"].items():
            if name in CHOICES[part]:
                own_keys = set(OWN_KEYS.get((f"{part}_conf",), ()))
                assert set(CHOICES[part][name].model_fields) - own_keys == set(keywords), (
                    part,
                    name,
                )


OWN = {
    "dataset_conf": {
        "filter_conf": {"max_duration": 20.0, "max_length": 3000},
        "fbank_conf": {"num_mel_bins": 80, "low_freq": 0.0, "snip_edges": True},
    },
    "encoder_conf": {"num_blocks": 2, "norm_eps": 1e-6, "att_context_size": [64, 32]},
    "decoder_conf": {"n_expert": 4},
}


def test_our_keys_with_other_values_stand_where_wenet_does_not_look(
    golden2: Path, tmp_path: Path
) -> None:
    config = parse_config({**OWN, "output_dim": 9, "input_dim": 80}, "test")
    save_config(config, tmp_path / "train.yaml")
    reader = WenetReader(tmp_path / "train.yaml", golden2 / "wenet_kwargs.yaml")
    assert reader.unknown_keywords() == []
    assert reader.values["wenet_uio"] == {
        "dataset_conf": {"filter_conf": {"max_duration": 20.0}, "fbank_conf": {"low_freq": 0.0}},
        "encoder_conf": {"att_context_size": [64, 32]},
    }
    assert reader.values["decoder_conf"]["n_expert"] == 4
    assert load_config(tmp_path / "train.yaml").model_dump() == config.model_dump()


def test_keys_at_their_defaults_are_left_out(tmp_path: Path) -> None:
    save_config(parse_config({}, "test"), tmp_path / "train.yaml")
    saved = read_yaml(tmp_path / "train.yaml")
    assert "wenet_uio" not in saved
    assert not set(LATE_KEYS["decoder_conf"]) & set(saved["decoder_conf"])
    assert "save_interval" not in saved  # WeNet divides by a null


def test_null_survives_saving_where_the_default_is_a_value(tmp_path: Path) -> None:
    save_config(parse_config({"keep_last": None}, "test"), tmp_path / "train.yaml")
    assert load_config(tmp_path / "train.yaml").keep_last is None


@pytest.mark.parametrize(
    "own", ["x", {"dataset_conf": {"filter_conf": {"max_duration_": 2}}}, {"encodr": {}}]
)
def test_a_wrong_section_of_our_keys_is_an_error_with_its_name(own: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a.yaml: (wenet_uio: expected sections|.*unknown key)"):
        parse_config({"wenet_uio": own}, "a.yaml")


def test_the_values_of_the_caller_are_not_changed() -> None:
    values = {
        "cmvn_file": "x",
        "raw_wav": True,
        "dataset_conf": {"max_length": 70},
        "collate_conf": {"spec_aug": True},
    }
    before = repr(values)
    logging.disable()
    try:
        parse_config(values, "a.yaml")
    finally:
        logging.disable(logging.NOTSET)
    assert repr(values) == before
