import logging
import shutil

import pytest
import yaml

from wenet_uio.config import load_config, parse_config, save_config
from wenet_uio.config.named_files import NAMED_FILES, copy_files

PATHS = {
    "tokenizer_conf": {
        "symbol_table_path": "data/dict/lang_char.txt",
        "bpe_path": "data/dict/train_unigram.model",
        "seg_dict_path": "data/dict/seg_dict",
        "model_path": "data/hub/tokenizer.json",
        "non_lang_syms_path": "conf/symbols",
    },
    "cmvn_conf": {"cmvn_file": "data/train/global_cmvn"},
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A recipe with all files that its conf/train.yaml names."""
    for section in PATHS.values():
        for path in section.values():
            (tmp_path / "home" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "home" / path).write_text(path)
    (tmp_path / "home/conf/train.yaml").write_text(yaml.safe_dump(PATHS))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def named(config):
    return [getattr(getattr(config, section), key) for section, key in NAMED_FILES]


def as_trained():
    return [path for section in PATHS.values() for path in section.values()]


def test_a_training_finds_its_files_from_the_working_directory(home, caplog):
    assert named(load_config("conf/train.yaml")) == as_trained()
    assert not caplog.records


def test_copies_are_named_relative_to_the_yaml_and_are_found_wherever_the_folder_is(
    home, tmp_path, monkeypatch, caplog
):
    run = home / "exp/run"
    config = copy_files(load_config("conf/train.yaml"), run)
    assert named(config) == list(NAMED_FILES.values())
    save_config(config, run / "train.yaml")
    shutil.move(run, tmp_path / "moved")
    shutil.rmtree(home / "data")
    (home / "units.txt").write_text("units of another model")
    monkeypatch.chdir(home)
    for of_model in (True, False):
        found = named(load_config("../moved/train.yaml", of_model=of_model))
        assert found == [f"../moved/{name}" for name in NAMED_FILES.values()]
    assert (tmp_path / "moved/units.txt").read_text() == "data/dict/lang_char.txt"
    assert not caplog.records


def test_files_of_a_model_of_others_are_found_beside_its_yaml_and_the_log_says_which(
    home, tmp_path, monkeypatch, caplog
):
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy("conf/train.yaml", model)
    names = (
        "units.txt",
        "train_unigram.model",
        "seg_dict",
        "tokenizer.json",
        "symbols",
        "global_cmvn",
    )
    for name in names:
        (model / name).write_text(name)
    shutil.rmtree(home)
    monkeypatch.chdir(tmp_path)
    expected = [f"model/{name}" for name in names]
    for of_model in (True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert named(load_config("model/train.yaml", of_model=of_model)) == expected
        lines = [record.getMessage() for record in caplog.records]
        assert lines[0] == (
            "model/train.yaml: tokenizer_conf.symbol_table_path data/dict/lang_char.txt: "
            "model/units.txt is taken"
        )
        assert len(lines) == 6


def test_a_model_in_its_recipe_takes_the_files_of_that_recipe_and_not_those_of_the_working_directory(
    home, tmp_path, monkeypatch, caplog
):
    other = tmp_path / "other"
    (other / "data/dict").mkdir(parents=True)
    (other / "data/dict/lang_char.txt").write_text("of another corpus")
    (home / "exp/old").mkdir(parents=True)
    shutil.copy("conf/train.yaml", home / "exp/old/train.yaml")
    assert load_config("exp/old/train.yaml", of_model=True).tokenizer_conf.symbol_table_path
    assert not caplog.records
    monkeypatch.chdir(other)
    units = load_config(
        "../home/exp/old/train.yaml", of_model=True
    ).tokenizer_conf.symbol_table_path
    assert units == str(home / "data/dict/lang_char.txt")
    assert f"{units} is taken" in caplog.text


def test_paths_of_overrides_stay_as_they_are_and_so_does_a_path_that_leads_nowhere(home):
    (home / "exp").mkdir()
    (home / "exp/units.txt").touch()
    (home / "exp/train.yaml").write_text("cmvn_conf: {cmvn_file: none}\n")
    config = load_config(
        "exp/train.yaml", ["tokenizer_conf.symbol_table_path=units.txt"], of_model=True
    )
    assert (config.tokenizer_conf.symbol_table_path, config.cmvn_conf.cmvn_file) == (
        "units.txt",
        "none",
    )
    assert named(copy_files(config, home / "exp/run")) == [
        "units.txt",
        None,
        None,
        None,
        None,
        "none",
    ]


def test_copying_again_changes_nothing_and_other_contents_are_copied_with_a_warning(home, caplog):
    run = home / "exp/run"
    config = load_config("conf/train.yaml")
    save_config(copy_files(config, run), run / "train.yaml")
    before = (run / "units.txt").stat().st_mtime_ns
    copy_files(config, run)
    copy_files(load_config("exp/run/train.yaml"), run)  # a run that is resumed with its own yaml
    assert (run / "units.txt").stat().st_mtime_ns == before
    assert not caplog.records
    (home / "data/dict/lang_char.txt").write_text("other units")
    copy_files(config, run)
    assert (run / "units.txt").read_text() == "other units"
    assert "exp/run/units.txt has other contents than data/dict/lang_char.txt" in caplog.text
    assert "it is kept as units.txt.former-1" in caplog.text


def test_values_of_a_wrong_type_are_reported_as_before(home):
    for wrong in ({"tokenizer_conf": "x"}, {"cmvn_conf": {"cmvn_file": 3}}):
        (home / "wrong.yaml").write_text(yaml.safe_dump(wrong))
        with pytest.raises(ValueError, match=r"wrong\.yaml: "):
            load_config("wrong.yaml")
    assert parse_config({}, "test").cmvn_conf.cmvn_file is None


@pytest.mark.parametrize(
    ("tokenizer", "key", "name"),
    [
        ("whisper", "bpe_path", "whisper.vocab"),
        ("huggingface", "model_path", "tokenizer.json"),
        ("sentencepiece", "model_path", "sentencepiece.model"),
    ],
)
def test_the_file_of_a_tokenizer_without_units_travels_with_the_run(
    home, tmp_path, tokenizer, key, name
):
    (home / "vocabulary").write_text("tokens")
    config = parse_config({"tokenizer": tokenizer, "tokenizer_conf": {key: "vocabulary"}}, "test")
    save_config(copy_files(config, home / "exp/run"), home / "exp/run/train.yaml")
    shutil.move(home / "exp/run", tmp_path / "moved")
    found = getattr(load_config(tmp_path / "moved/train.yaml", of_model=True).tokenizer_conf, key)
    assert found == str(tmp_path / "moved" / name)


def test_a_tokenizer_of_hugging_face_may_be_named_by_its_folder(home, tmp_path):
    (tmp_path / "model/hub").mkdir(parents=True)
    (tmp_path / "model/hub/tokenizer.json").touch()
    (tmp_path / "model/train.yaml").write_text(
        "tokenizer: huggingface\ntokenizer_conf: {model_path: hub}\n"
    )
    found = load_config(tmp_path / "model/train.yaml", of_model=True).tokenizer_conf.model_path
    assert found == str(tmp_path / "model/hub")
