import pytest
import yaml

from wenet_uio.config import ConfigError, load_config, parse_config

AGGREGATE = {
    "type": "agg",
    "langs": {"en": {"type": "bpe", "dir": "tok/en"}, "es": {"type": "bpe", "dir": "tok/es/"}},
}


def test_an_aggregate_tokenizer_of_nemo_has_a_sentencepiece_model_for_each_language():
    section = {
        "tokenizer": AGGREGATE,
        "train_ds": {"manifest_filepath": "a.json", "lang_field": "spoken"},
    }
    config = parse_config({"model": section}, "t.yaml")
    conf = config.tokenizer_conf
    assert (config.tokenizer, conf.lang_field) == ("aggregate", "spoken")
    found = {
        language: (part.tokenizer, part.model_path) for language, part in conf.languages.items()
    }
    assert found == {
        "en": ("sentencepiece", "tok/en/tokenizer.model"),
        "es": ("sentencepiece", "tok/es/tokenizer.model"),
    }


def test_a_single_tokenizer_of_nemo_is_the_sentencepiece_model_in_its_folder(tmp_path):
    config = parse_config({"model": {"tokenizer": {"type": "bpe", "dir": "tok"}}}, "t.yaml")
    assert (config.tokenizer, config.tokenizer_conf.model_path) == (
        "sentencepiece",
        "tok/tokenizer.model",
    )
    (tmp_path / "train.yaml").write_text(
        yaml.safe_dump({"tokenizer": {"type": "bpe", "dir": "tok"}})
    )
    config = load_config(tmp_path / "train.yaml", ["model.tokenizer.dir=other"])
    assert config.tokenizer_conf.model_path == "other/tokenizer.model"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"type": "yttm", "dir": "tok"},
            "tokenizer: expected type: bpe and dir, the folder of tokenizer.model",
        ),
        ({"type": "agg"}, "tokenizer.langs: expected a tokenizer for each language, found None"),
        ({"type": "agg", "langs": {"en": "tok"}}, "tokenizer.langs.en: expected type: bpe and dir"),
        ({"type": "bpe"}, "write tokenizer and tokenizer_conf"),
    ],
)
def test_other_tokenizers_of_nemo_are_answered_in_one_line(section, said):
    with pytest.raises(ConfigError) as error:
        parse_config({"model": {"tokenizer": section}}, "t.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_custom_tokenizer_is_answered_with_the_overrides_that_leave_it_out(tmp_path):
    part = {"type": "bpe", "dir": "tok"}
    section = {
        "dir": None,
        "type": "agg",
        "langs": {"spl_tokens": part, "en": part},
        "custom_tokenizer": {"_target_": "x.CanaryTokenizer", "tokenizers": None},
    }
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({"model": {"tokenizer": section}}))
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "t.yaml")
    overrides = str(raised.value).partition("--override_config ")[2].partition(";")[0].split()
    assert len(overrides) == 2
    config = load_config(tmp_path / "t.yaml", overrides)
    assert (config.tokenizer, list(config.tokenizer_conf.languages)) == ("aggregate", ["en"])
