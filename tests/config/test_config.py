import pytest
import yaml

from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.config.wenet import from_wenet


def test_wenet_files_load_unchanged(golden):
    for name in ("transformer", "conformer", "u2pp_conformer"):
        config = load_config(golden / name / "train.yaml")
        assert config.encoder in ("transformer", "conformer")
        assert config.dataset_conf.fbank_conf.num_mel_bins == 80


def test_a_saved_config_loads_equal(tmp_path):
    config = parse_config({"encoder": "transformer", "encoder_conf": {"num_blocks": 3}}, "test")
    save_config(config, tmp_path / "train.yaml")
    assert load_config(tmp_path / "train.yaml").model_dump() == config.model_dump()


def test_the_error_of_a_misspelt_key_is_one_line_with_the_nearest_key():
    with pytest.raises(
        ConfigError,
        match=r"^a.yaml: dataset_conf.spek_aug: unknown key; did you mean 'spec_aug'\?$",
    ):
        parse_config({"dataset_conf": {"spek_aug": True}}, "a.yaml")


def test_all_problems_are_reported_at_once():
    values = {
        "encodr": "conformer",
        "encoder_conf": {"num_blocks": "many"},
        "dataset_conf": {
            "filter_conf": {"min_length": 20, "max_length": 10},
            "batch_conf": {"batch_size": 0},
        },
    }
    with pytest.raises(ConfigError) as caught:
        parse_config(values, "a.yaml")
    message = str(caught.value)
    assert message.startswith("a.yaml: 4 problems")
    for part in (
        "encodr: unknown key; did you mean 'encoder'?",
        "encoder_conf.num_blocks",
        "min_length 20 is above max_length 10",
        "dataset_conf.batch_conf.batch_size",
    ):
        assert part in message


def test_the_error_of_an_unknown_encoder_has_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'conformer'"):
        parse_config({"encoder": "confromer"}, "a.yaml")


@pytest.mark.parametrize("name", ["confromer", None])
def test_the_keys_of_an_unknown_encoder_are_not_reported_as_unknown(name):
    with pytest.raises(ConfigError) as caught:
        parse_config({"encoder": name, "encoder_conf": {"num_blocks": 3}}, "a.yaml")
    assert str(caught.value).startswith("a.yaml: encoder: ")
    assert "encoder_conf" not in str(caught.value)


def test_an_error_without_a_near_name_lists_the_known_names():
    with pytest.raises(ConfigError, match="decoder: .*unknown; known: transformer, bitransformer"):
        parse_config({"decoder": "x"}, "a.yaml")


def test_sizes_come_from_the_first_key_that_has_them():
    config = parse_config({"dataset_conf": {"fbank_conf": {"num_mel_bins": 40}}}, "test")
    assert (config.feature_dim, config.vocabulary_size) == (40, None)
    config = parse_config({"input_dim": 83, "vocab_size": 7}, "test")
    assert (config.feature_dim, config.vocabulary_size) == (83, 7)
    assert parse_config({"output_dim": 6, "vocab_size": 7}, "test").vocabulary_size == 6


def test_overrides_are_typed_and_checked(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("max_epoch: 3\n")
    config = load_config(
        path, ["max_epoch=5", "dataset_conf.batch_conf.batch_type=dynamic", "optim_conf.lr=2e-3"]
    )
    assert config.max_epoch == 5
    assert config.dataset_conf.batch_conf.batch_type == "dynamic"
    assert config.optim_conf.lr == 0.002
    with pytest.raises(ConfigError, match="expected key.subkey=value"):
        load_config(path, ["max_epoch"])
    with pytest.raises(ConfigError, match="max_epoch is a value, not a section"):
        load_config(path, ["max_epoch.x=1"])
    with pytest.raises(
        ConfigError, match=r"cmvn_file=\*: the value is not yaml; write a text as cmvn_file='text'"
    ):
        load_config(path, ["cmvn_conf.cmvn_file=*"])


def test_the_error_of_a_file_that_is_not_yaml_is_one_line(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: [1\nb: 2")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)
    path.write_text(yaml.safe_dump(["a"]))
    with pytest.raises(ConfigError, match="found list"):
        load_config(path)


def test_blanks_are_left_out_only_where_ctc_is_trained() -> None:
    conf = {"apply_non_blank_embedding": True, "ctc_weight": 0.0}
    with pytest.raises(
        ConfigError,
        match=r"a.yaml: model_conf: .*CTC finds the blanks, so ctc_weight must be above 0",
    ):
        parse_config({"model_conf": conf}, "a.yaml")


def test_keys_of_wenet_are_converted_once_a_load(tmp_path, monkeypatch):
    path = tmp_path / "train.yaml"
    path.write_text("dataset_conf: {max_length: 100}\n")
    calls = []

    def counted(values, where):
        calls.append(where)
        return from_wenet(values, where)

    monkeypatch.setattr("wenet_uio.config.load.from_wenet", counted)
    assert load_config(path).dataset_conf.filter_conf.max_length == 100
    assert calls == [str(path)]
    # An override may have a key of WeNet, too.
    config = load_config(path, ["dataset_conf.split_with_space=true"])
    assert config.tokenizer_conf.split_with_space
