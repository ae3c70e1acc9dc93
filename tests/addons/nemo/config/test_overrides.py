"""Overrides of NeMo's sections: one merge, key by key, the last one wins, whatever the spelling."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wenet_uio.addons.nemo.config.batches import BATCHES, FILTERS
from wenet_uio.addons.nemo.config.sources import SOURCES
from wenet_uio.config import ConfigError, load_config
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.mixture import MixtureConf

SECTION = {"manifest_filepath": "a.json", "max_duration": 20.0, "batch_size": 8}
BUCKETS = {"manifest_filepath": [["a.json"], ["b.json"]]}
BINS = {"bucket_duration_bins": [2.0, 4.0], "bucket_batch_size": [8, 4]}
TEXT = {"input_cfg": [{"type": "txt", "paths": "a.txt"}], "batch_tokens": 100}
IN_TOKENS = {**SECTION, "batch_tokens": 400, "token_equivalent_duration": 0.1}
KEYS: dict[str, tuple[dict[str, Any], Any]] = {
    **dict.fromkeys(FILTERS, (SECTION, 2)),
    "max_duration": (SECTION, 3),
    "input_cfg": (SECTION, [{"type": "nemo", "manifest_filepath": "b.json"}]),
    "cuts_path": (SECTION, "cuts.jsonl.gz"),
    "shar_path": (SECTION, "shar"),
    "manifest_filepath": (SECTION, ["b.json", "c.json"]),
    "tarred_audio_filepaths": (SECTION, "a_{0..3}.tar"),
    "is_tarred": (SECTION, False),
    "text_field": (SECTION, "answer"),
    "token_equivalent_duration": (
        {"input_cfg": [{"type": "multimodal_conversation", "manifest_filepath": "a.jsonl"}]},
        0.1,
    ),
    "batch_size": (SECTION, 4),
    "batch_duration": (SECTION, 100),
    "quadratic_duration": ({**SECTION, "batch_duration": 60}, 15),
    "batch_tokens": (TEXT, 400),
    "quadratic_factor": (TEXT, 50),
    "use_bucketing": ({**SECTION, **BINS}, True),
    "bucket_duration_bins": ({**SECTION, **BINS}, [3.0, 9.0]),
    "bucket_batch_size": ({**SECTION, **BINS}, [5, 2]),
    "use_semi_sorted_batching": (SECTION, True),
    "randomization_factor": (SECTION, 0.3),
    "bucketing_strategy": (SECTION, "fixed_order"),
    "bucketing_batch_size": (BUCKETS, [4, 2]),
    "bucketing_weights": (BUCKETS, [2, 1]),
    "bucketing_2d_strict_mode": (SECTION, False),
    "measure_total_length": (TEXT, False),
    "shuffle": (SECTION, False),
    "seed": (SECTION, 5),
    "sample_rate": (SECTION, 8000),
    "tarred_shard_strategy": (SECTION, "replicate"),
    "channel_selector": (SECTION, 1),
    "use_multimodal_sampling": (IN_TOKENS, True),
    "use_multimodal_dataloading": (IN_TOKENS, True),
}
"""{key of a loader: (section that it can stand in, value)}."""
PREFIXES = ("", "+", "++")
NAMES = ("train_ds", "model.train_ds", "training_ds", "model.training_ds", "data.train_ds")
SPELLINGS = [prefix + name for prefix, name in itertools.product(PREFIXES, NAMES)]
LAYOUTS = ("top", "model", "training_ds", "file")


def written(folder, layout, section):
    """Write a train.yaml with a loader of NeMo, and return its path."""
    path = folder / "t.yaml"
    content: dict[str, Any] = {"train_ds": section}
    if layout == "model":
        content = {"model": {"sample_rate": 16000, "train_ds": section}}
    elif layout == "training_ds":
        content = {"model": {"training_ds": section}}
    elif layout == "file":
        (folder / "loader.yaml").write_text(yaml.safe_dump(section))
        content = {"train_ds": str(folder / "loader.yaml")}

    path.write_text(yaml.safe_dump(content))
    return path


def override(spelling, key, value):
    return f"{spelling}.{key}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"


def test_every_key_of_a_loader_is_tried():
    assert KEYS.keys() >= {*SOURCES, *FILTERS, *BATCHES}


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    key=st.sampled_from(sorted(KEYS)),
    spelling=st.sampled_from(SPELLINGS),
    layout=st.sampled_from(LAYOUTS),
)
def test_an_override_gives_what_the_key_in_the_file_gives(tmp_path, key, spelling, layout):
    section, value = KEYS[key]
    changed = load_config(written(tmp_path, layout, {**section, key: value})).model_dump()
    path = written(tmp_path, layout, section)
    assert load_config(path, [override(spelling, key, value)]).model_dump() == changed
    other = 7 if key in FILTERS else section.get(key, value)
    twice = [override("train_ds", key, other), override(spelling, key, value)]
    assert load_config(path, twice).model_dump() == changed


BATCH_VALUES = {
    "batch_type": "dynamic",
    "batch_size": 3,
    "max_frames_in_batch": 500,
    "batch_duration": 40.0,
    "batch_target": None,
    "quadratic_duration": None,
    "bucket_boundaries": [100, 200, 300],
    "bucket_batch_sizes": [4, 3, 2, 1],
    "bucket_duration_bins": None,
    "bucket_batch_size": None,
    "max_tps": None,
    "bucket_choice": "lenient",
    "batch_tokens": 50,
    "quadratic_factor": None,
    "token_buckets": None,
    "use_semi_sorted_batching": True,
    "randomization_factor": 0.2,
    "length_jitter": 0.0,
    "length_order": "rising",
}
MIXTURE_VALUES = {
    "sources": [{"type": "nemo", "manifest_filepath": "c.json"}],
    "utterances_per_epoch": 30,
    "temperature": 2.0,
    "per_batch": True,
}


def test_every_key_of_a_batch_and_of_a_mixture_is_tried():
    assert set(BatchConf.model_fields) == set(BATCH_VALUES)
    assert set(MixtureConf.model_fields) == set(MIXTURE_VALUES)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keys_of_this_project_change_what_a_loader_of_nemo_gives(tmp_path, layout):
    path = written(tmp_path, layout, SECTION)
    plain = load_config(path)
    for key, value in BATCH_VALUES.items():
        conf = load_config(path, [override("dataset_conf.batch_conf", key, value)]).dataset_conf
        expected = BatchConf.model_validate({"batch_type": "static", "batch_size": 8, key: value})
        assert conf.batch_conf == expected, key
        assert conf.filter_conf == plain.dataset_conf.filter_conf

    for key, value in MIXTURE_VALUES.items():
        data = load_config(path, [override("data", key, value)]).data
        expected = plain.data.model_dump(exclude_unset=True, exclude={"filter_conf"}) | {key: value}
        assert data == MixtureConf.model_validate(expected), key


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_key_of_a_section_leaves_the_others(tmp_path, spelling):
    config = load_config(written(tmp_path, "model", SECTION), [f"{spelling}.max_duration=3"])
    conf = config.dataset_conf
    assert (conf.filter_conf.max_duration, conf.batch_conf.batch_size) == (3, 8)
    assert config.data.sources[0].manifest_filepath == "a.json"


@pytest.mark.parametrize(
    ("changes", "duration"),
    [
        (["model.train_ds.max_duration=3", "train_ds.max_duration=4"], 4),
        (["train_ds.max_duration=3", "dataset_conf.filter_conf.max_duration=4"], 4),
        (["dataset_conf.filter_conf.max_duration=3", "model.train_ds.max_duration=4"], 4),
        (["max_epoch=2", "++model.train_ds={max_duration:5}"], 5),
        (["~model.train_ds.max_duration"], None),
        (["model.train_ds.max_duration=null"], None),
        (["train_ds={max_duration: 6}", "max_epoch=2"], 6),
    ],
)
def test_the_last_override_of_a_key_wins_in_whatever_spelling(tmp_path, changes, duration):
    config = load_config(written(tmp_path, "model", SECTION), changes)
    assert config.dataset_conf.filter_conf.max_duration == duration
    assert config.dataset_conf.batch_conf.batch_size == 8


def test_items_of_lists_are_changed_by_their_number(tmp_path):
    sources = [{"type": "nemo", "manifest_filepath": name, "weight": 1} for name in ("a", "b")]
    path = written(tmp_path, "model", {"input_cfg": sources})
    for change in ("model.train_ds.input_cfg.1.weight=3", "train_ds.input_cfg[1].weight=3"):
        assert [source.weight for source in load_config(path, [change]).data.sources] == [1, 3]
    config = load_config(path, ["data.sources.0.weight=5"])
    assert [source.weight for source in config.data.sources] == [5, 1]
    with pytest.raises(ConfigError, match="2 is no number of the list, which has 2 items"):
        load_config(path, ["model.train_ds.input_cfg.2.weight=3"])


def test_what_one_override_leaves_open_another_may_give(tmp_path):
    (tmp_path / "t.yaml").write_text("model: {tokenizer: {dir: '???', type: bpe}}")
    changes = ["max_epoch=2", "++model.tokenizer.dir=tok"]
    config = load_config(tmp_path / "t.yaml", changes)
    assert (config.max_epoch, config.tokenizer_conf.model_path) == (2, "tok/tokenizer.model")
    changes = ["tokenizer=char", "tokenizer_conf.symbol_table_path=units.txt"]
    assert load_config(tmp_path / "t.yaml", changes).tokenizer == "char"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.train_ds.max_duratoin=3", "unknown key; did you mean 'max_duration'?"),
        ("train_ds.max_duratoin=3", "unknown key; did you mean 'max_duration'?"),
        ("model.validation_ds.manifest_filpath=a", "did you mean 'manifest_filepath'?"),
        ("model.encoder.n_layers=3", "the architecture of NeMo (encoder) is not read"),
        ("model.n_layers=3", "model.n_layers: meets nothing here"),
        ("trainer.max_epoch=3", "trainer.max_epoch: unknown key; did you mean 'max_epochs'?"),
        ("model.optim.learning_rate=3", "learning_rate: unknown key; known: name, lr"),
        ("model.train_ds.batch_size.x=3", "batch_size is a value, not a section"),
        ("~model.train_ds.min_duration", "there is no key min_duration to remove"),
        ("exp_manager.exp_dir=x", "exp_manager.exp_dir: meets nothing here"),
        ("dataset_conf.batch_conf.batch_sise=3", "did you mean 'batch_size'?"),
        (
            "mode.validation_ds.manifest_filepath=a",
            "meets nothing here; did you mean model.validation_ds.manifest_filepath?",
        ),
        ("mode.tokenizer.dir=a", "did you mean model.tokenizer.dir?"),
        ("mode=finetune", "mode: meets nothing here"),
        ("name.train_ds.batch_size=3", "did you mean model.train_ds.batch_size?"),
        ("name=x", "name: meets nothing here; no key of the file refers to it"),
        ("do_training=false", "do_training: meets nothing here"),
        ("init_strict=false", "--checkpoint and --enc_init of train.py name what is loaded"),
        ("sample_rate=8000", "sample_rate: meets nothing here"),
        ("model_defaults.enc_hidden=3", "model_defaults.enc_hidden: meets nothing here"),
        ("model.trian_ds.batch_size=3", "did you mean model.train_ds.batch_size?"),
    ],
)
def test_an_override_that_meets_nothing_is_an_error(tmp_path, change, message):
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, "model", SECTION), [change])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


VARIABLES = """
name: x
sample_rate: 8000
model_defaults: {most: 9, least: 1}
model:
  train_ds: {manifest_filepath: a.json, sample_rate: '${sample_rate}', text_field: '${name}',
    max_duration: '${model_defaults.most}'}
"""


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("sample_rate=16000", (16000, 9, "x")),
        ("++model_defaults.most=7", (8000, 7, "x")),
        ("model_defaults={most: 5}", (8000, 5, "x")),
        ("name=y", (8000, 9, "y")),
    ],
)
def test_an_override_changes_a_key_at_the_top_that_others_refer_to(tmp_path, change, values):
    (tmp_path / "t.yaml").write_text(VARIABLES)
    config = load_config(tmp_path / "t.yaml", [change])
    conf, source = config.dataset_conf, config.data.sources[0]
    found = conf.resample_conf.resample_rate, conf.filter_conf.max_duration, source.text_field
    assert found == values
    with pytest.raises(ConfigError, match="model_defaults.least: meets nothing here"):
        load_config(tmp_path / "t.yaml", [change, "model_defaults.least=2"])


NEEDED = {
    "model.train_ds.manifest_filepath": "a.json",
    "model.train_ds.batch_size": "4",
    "model.tokenizer.dir": "folder",
    "encoder": "conformer",
}
"""Overrides without which the config below has other problems."""


@pytest.mark.parametrize(
    "change",
    [
        "encoder_conf.num_bloks=3",
        "model.train_ds.max_duratoin=3",
        "dataset_conf.batch_conf.batch_size=0",
        "trainer.precision=77",
        "optim=sgdd",
    ],
)
def test_an_error_names_the_override_that_it_comes_from_alone(tmp_path, change):
    (tmp_path / "t.yaml").write_text(
        "model: {train_ds: {manifest_filepath: '???', batch_size: '???'}, encoder: {d_model: 8},"
        " tokenizer: {dir: '???', type: bpe}}"
    )
    needed = [f"{key}={value}" for key, value in NEEDED.items()]
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "t.yaml", [*needed, change])
    assert str(raised.value).startswith(f"--override_config {change}: ")
    assert not any(override in str(raised.value) for override in needed)


def test_two_overrides_that_exclude_one_another_are_both_named(tmp_path):
    path = written(tmp_path, "model", SECTION)
    bounds = ["min_length=50", "max_length=20"]
    changes = ["max_epoch=3", *(f"dataset_conf.filter_conf.{bound}" for bound in bounds)]
    with pytest.raises(ConfigError) as raised:
        load_config(path, changes)
    assert str(raised.value).startswith(f"--override_config {changes[1]} {changes[2]}: ")
