"""Sections of a transducer: defaults, derived widths, and their absence in other models."""

from __future__ import annotations

import pytest

from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.families.transducer.conf import ConvPredictorConf, RnnPredictorConf


def test_a_saved_transducer_has_the_input_widths_of_its_joint(tmp_path):
    values = {
        "model": "transducer",
        "encoder_conf": {"output_size": 64},
        "predictor_conf": {"output_size": 48},
    }
    save_config(parse_config(values, "test"), tmp_path / "train.yaml")
    saved = load_config(tmp_path / "train.yaml")
    assert (saved.predictor, saved.joint) == ("rnn", "transducer_joint")
    assert saved.joint_conf is not None
    assert (saved.joint_conf.enc_output_size, saved.joint_conf.pred_output_size) == (64, 48)


@pytest.mark.parametrize("names", [{}, {"predictor": None, "joint": None}])
def test_a_transducer_has_all_its_sections_also_if_the_yaml_has_none(names):
    config = parse_config({"model": "transducer", **names}, "test")
    assert config.predictor == "rnn"
    assert isinstance(config.predictor_conf, RnnPredictorConf)
    assert config.joint_conf.join_dim == 512
    assert config.model_conf.transducer_weight == 1.0


def test_an_empty_name_is_not_replaced_by_the_default():
    with pytest.raises(ConfigError, match="predictor: .*known: rnn, embedding, conv.*, found ''"):
        parse_config({"model": "transducer", "predictor": ""}, "test")


def test_the_name_of_the_predictor_selects_its_keys():
    config = parse_config({"model": "transducer", "predictor": "conv"}, "test")
    assert isinstance(config.predictor_conf, ConvPredictorConf)


def test_another_model_has_no_sections_of_a_transducer():
    config = parse_config({}, "test")
    assert config.predictor is config.predictor_conf is config.joint_conf is None


@pytest.mark.parametrize("key", ["predictor", "predictor_conf", "joint_conf"])
def test_a_predictor_without_a_transducer_is_refused(key):
    kinds = "transducer" if key == "joint_conf" else "transducer( or paraformer)?"
    message = f"{key}: only a {kinds} has this key; add `model: transducer` or remove it"
    with pytest.raises(ConfigError, match=message):
        parse_config({key: "rnn" if key == "predictor" else {}}, "test.yaml")
