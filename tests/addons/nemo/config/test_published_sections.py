"""NeMo's published data sections load as they stand, or one line says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from wenet_uio.addons.nemo.config import convert
from wenet_uio.config import ConfigError, load_config

ANSWERS = Path(__file__).parents[3] / "support/data/nemo_train_ds_answers.txt"
GIVEN = {"type": "bpe", "batch_size": 8}
"""Values for `???`; others are paths."""


def answer(path: Path) -> str:
    try:
        config = load_config(path)
    except ConfigError as error:
        return str(error).replace(f"{path}: ", "")
    names_data = [key for key in ("data", "cv_data") if getattr(config, key)]
    return " ".join(["loads", *names_data])


def with_values(content: Any, key: str = "") -> Any:
    if isinstance(content, dict):
        return {name: with_values(part, name) for name, part in content.items()}
    return GIVEN.get(key, f"/data/{key}") if content == "???" else content


def test_every_published_section_loads_or_is_answered_in_one_line(nemo_train_ds, tmp_path):
    lines = []
    for path in sorted(nemo_train_ds.glob("*.yaml")):
        filled = tmp_path / "filled.yaml"
        filled.write_text(yaml.safe_dump(with_values(yaml.safe_load(path.read_text()))))
        lines += [path.name, f"    as it stands: {answer(path)}", f"    filled: {answer(filled)}"]
    assert "\n".join(lines) + "\n" == ANSWERS.read_text(encoding="utf-8")


def test_the_table_of_published_sections_has_one_line_for_each_answer():
    lines = ANSWERS.read_text(encoding="utf-8").splitlines()
    answers = [line for line in lines if line.startswith("    filled: ")]
    assert len(lines) == 3 * len(answers) == 3 * 62
    loaded = sum(line == "    filled: loads data cv_data" for line in answers)
    readme = (Path(convert.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert f"{loaded} of NeMo's {len(answers)} published data sections load" in readme


FILE = """
name: example
model:
  sample_rate: 16000
  labels: &labels [a, b]
  compute_eval_loss: false
  train_ds: {manifest_filepath: a.json, sample_rate: '${model.sample_rate}', labels: *labels,
    batch_size: 16, trim_silence: false, use_start_end_token: false, is_tarred: false,
    tarred_audio_filepaths: null, max_duration: 16.7, shuffle: true, num_workers: 8}
  validation_ds: {manifest_filepath: [b.json, c.json], sample_rate: '${model.sample_rate}',
    batch_size: 4, shuffle: false}
  test_ds: {manifest_filepath: null}
trainer: {devices: -1, max_epochs: 7, max_steps: -1, logger: false}
exp_manager: {exp_dir: null, name: '${name}'}
"""


def loaded(tmp_path, text=FILE, overrides=()):
    (tmp_path / "t.yaml").write_text(text)
    return load_config(tmp_path / "t.yaml", overrides)


def test_a_published_file_gives_training_and_validation_data(tmp_path):
    config = loaded(tmp_path)
    conf = config.dataset_conf
    assert config.data.sources[0].manifest_filepath == "a.json"
    assert config.cv_data.sources[0].manifest_filepath == ("b.json", "c.json")
    assert (conf.resample_conf.resample_rate, conf.batch_conf.batch_size) == (16000, 16)
    assert (conf.filter_conf.max_duration, config.max_epoch) == (16.7, 7)


def test_sections_of_this_project_stand_beside_those_of_nemo(tmp_path):
    config = loaded(tmp_path, FILE + "encoder: transformer\noptim: adamw\nmax_steps: 5\n")
    assert (config.encoder, config.optim, config.max_steps, config.max_epoch) == (
        "transformer",
        "adamw",
        5,
        7,
    )
    assert config.cv_data is not None


def test_trimmed_shifted_and_noisy_audio_keeps_the_numbers_of_the_file(tmp_path, caplog):
    augmentor = (
        "{shift: {prob: 1.0, min_shift_ms: -10.0, max_shift_ms: 8.0}, "
        "white_noise: {prob: 0.5, min_level: -80, max_level: -40}}"
    )
    text = f"""
model:
  train_ds: {{manifest_filepath: a.json, trim_silence: true, augmentor: {augmentor}}}
  validation_ds: {{manifest_filepath: b.json, trim_silence: true}}
"""
    conf = loaded(tmp_path, text).dataset_conf
    assert conf.trim_conf.top_db == 60
    assert (conf.shift_conf.milliseconds, conf.shift_conf.prob) == ((-10, 8), 1)
    assert (conf.white_noise_conf.level, conf.white_noise_conf.prob) == ((-80, -40), 0.5)
    assert "validation_ds.trim_silence: not read here" in caplog.text
    plain = loaded(tmp_path, text.replace("trim_silence: true", "trim_silence: false"))
    assert plain.dataset_conf.trim_conf is None


@pytest.mark.parametrize("name", ["noise", "impulse"])
def test_an_augmentation_without_recordings_is_off_and_said(tmp_path, caplog, name):
    text = f"model: {{train_ds: {{augmentor: {{{name}: {{manifest_path: null, prob: 0.5}}}}}}}}"
    conf = loaded(tmp_path, text).dataset_conf
    assert (conf.noise_conf, conf.reverb_conf) == (None, None)
    assert f"augmentor.{name}: off, because manifest_path is null: give the path" in caplog.text
    change = f"model.train_ds.augmentor.{name}.manifest_path=n.json"
    conf = loaded(tmp_path, text, [change]).dataset_conf
    assert (conf.noise_conf or conf.reverb_conf).data_list == "n.json"


def test_the_rate_of_the_model_is_that_of_the_data(tmp_path):
    text = "model: {sample_rate: 8000, train_ds: {manifest_filepath: a.json}}"
    assert loaded(tmp_path, text).dataset_conf.resample_conf.resample_rate == 8000
    text = "model: {train_ds: {sample_rate: 8000}, validation_ds: {sample_rate: 16000}}"
    with pytest.raises(ConfigError, match="resampled to one rate: write it once"):
        loaded(tmp_path, text)


def test_a_path_that_is_still_to_be_given_is_named(tmp_path, caplog):
    text = "model: {train_ds: {manifest_filepath: '???', batch_size: 4}}"
    config = loaded(tmp_path, text)
    assert (config.data, config.dataset_conf.batch_conf.batch_size) == (None, 4)
    assert "train_ds.manifest_filepath: ???: give the path" in caplog.text
    config = loaded(tmp_path, text, ["++model.train_ds.manifest_filepath=a.json"])
    assert config.data.sources[0].manifest_filepath == "a.json"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model: {train_ds: {batch_size: '???', max_duration: '???'}}",
            "++model.train_ds.batch_size=VALUE ++model.train_ds.max_duration=VALUE",
        ),
        ("model: {tokenizer: {dir: '???', type: bpe}}", "++model.tokenizer.dir=VALUE"),
        ("model: {train_ds: {input_key: noisy}}", "a model from audio to audio"),
        ("model: {train_ds: {augmentor: {silence: {prob: 1}}}}", "augmentor.silence: has no equal"),
        ("init_from_nemo_model: x.nemo\nmodel: {train_ds: {}}", "--checkpoint"),
        (
            "model: {encoder: {_target_: x.ConformerEncoder, d_model: 512, n_layers: 17,"
            " ff_expansion_factor: 4}, decoder: {}, train_ds: {}}",
            "write at the top of the yaml, or as overrides, encoder: conformer and encoder_conf: "
            "{output_size: 512, num_blocks: 17, linear_units: 2048}",
        ),
        (
            "train_ds: {manifest_filepath: a}\nmodel: {train_ds: {manifest_filepath: b}}",
            "train_ds.manifest_filepath stands there twice, as 'a' and as 'b'",
        ),
    ],
)
def test_what_has_no_equal_is_answered_in_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_architecture_of_nemo_beside_one_of_this_project_is_answered_once(tmp_path, caplog):
    text = "model: {encoder: {d_model: 8}, decoder: {}, loss: {}, train_ds: {shuffle: false}}"
    config = loaded(tmp_path, f"{text}\nencoder_conf: {{num_blocks: 2}}")
    assert (config.encoder_conf.num_blocks, config.dataset_conf.shuffle) == (2, False)
    assert caplog.text.count("the architecture of NeMo") == 1
    assert loaded(tmp_path, text, ["encoder_conf.num_blocks=3"]).encoder_conf.num_blocks == 3


def test_keys_at_the_top_that_others_refer_to_are_variables_of_the_file(tmp_path):
    text = "most: 9\nparts: {least: 1}\nmodel: {train_ds: {max_duration: '${most}',"
    config = loaded(tmp_path, f"{text} min_duration: '${{parts.least}}'}}}}")
    filters = config.dataset_conf.filter_conf
    assert (filters.min_duration, filters.max_duration) == (1, 9)
    with pytest.raises(ConfigError, match="mots: unknown key"):
        loaded(tmp_path, f"mots: 8\n{text} min_duration: 1}}}}")


def test_a_value_that_is_missing_inside_of_a_list_is_named(tmp_path):
    text = "data: {train_ds: {input_cfg: [{type: nemo, manifest_filepath: '???'}]}}"
    with pytest.raises(
        ConfigError, match=r"\+\+model.train_ds.input_cfg.0.manifest_filepath=VALUE"
    ):
        loaded(tmp_path, text)
    change = "data.train_ds.input_cfg.0.manifest_filepath=a.json"
    assert loaded(tmp_path, text, [change]).data.sources[0].manifest_filepath == "a.json"


def test_a_quadratic_duration_beside_a_batch_size_alone_is_not_needed(tmp_path, caplog):
    text = "model: {train_ds: {batch_duration: null, quadratic_duration: 30, batch_size: 16}}"
    assert loaded(tmp_path, text).dataset_conf.batch_conf.batch_size == 16
    assert "batch_size alone bounds batches" in caplog.text


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("perturb_speed: true", {"speed_perturb": True}),
        ("channel_selector: average", {"singal_channel_conf": {"channel": "mix"}}),
        ("channel_selector: 1", {"singal_channel_conf": {"channel": 1}}),
        (
            "augmentor: {speed: {prob: 0.5, min_speed_rate: 0.95, max_speed_rate: 1.05,"
            " num_rates: 3}}",
            {
                "speed_perturb": True,
                "speed_perturb_conf": {"speeds": [1.0, 1.0, 1.0, 0.95, 1.0, 1.05]},
            },
        ),
        (
            "augmentor: {noise: {manifest_path: n.json, prob: 0.8, min_snr_db: 0, max_snr_db: 15}}",
            {"noise_conf": {"data_list": "n.json", "prob": 0.8, "snr": [0.0, 15.0]}},
        ),
        (
            "augmentor: {impulse: {manifest_path: r.json, prob: 0.5}, gain: {prob: 1.0}}",
            {"reverb_conf": {"data_list": "r.json"}, "gain_conf": {"gain": [-10.0, 10.0]}},
        ),
        ("rir_enabled: true", {"reverb_conf": {}}),
        (
            "noise_path: n.json\n    noise_snr: [5, 10]",
            {"noise_conf": {"data_list": "n.json", "snr": [5.0, 10.0]}},
        ),
    ],
)
def test_changes_of_audio_are_those_of_dataset_conf(tmp_path, section, keys):
    config = loaded(tmp_path, f"model:\n  train_ds:\n    {section}\n")
    assert config.dataset_conf.model_dump(mode="json", exclude_defaults=True) == keys


IN_TOKENS = "use_multimodal_sampling: true, token_equivalent_duration: 0.08"
AUDIO = "manifest_filepath: a.json"
MIXED = "input_cfg: [{type: nemo, manifest_filepath: a.json}, {type: txt, paths: a.txt}]"
TEXT = "input_cfg: [{type: txt, paths: a.txt}]"
BINS = "bucket_duration_bins: [[10, 4], [10, 26], [15, 10]], bucket_batch_size: [512, 128, 192]"
FLAT = "bucket_duration_bins: [10, 20, 30], bucket_batch_size: [512, 128, 192]"
SECONDS = ((0.8, 4), (0.8, 26), (1.2, 10))


@pytest.mark.parametrize(
    ("section", "batches", "filters"),
    [
        (
            f"{AUDIO}, {IN_TOKENS}, batch_tokens: 4000, quadratic_factor: 50, max_tokens: 500",
            {"batch_type": "dynamic", "batch_tokens": 4000, "quadratic_factor": 50},
            {"max_tokens": 500, "token_equivalent_duration": 0.08},
        ),
        (
            f"{MIXED}, {IN_TOKENS}, batch_tokens: 4000, batch_size: 8, min_tokens: 3",
            {"batch_type": "dynamic", "batch_tokens": 4000, "batch_size": 8},
            {"min_tokens": 3, "token_equivalent_duration": 0.08},
        ),
        (
            f"{AUDIO}, {IN_TOKENS}, batch_size: 8, max_tokens: 4096",
            {"batch_size": 8},
            {"max_tokens": 4096, "token_equivalent_duration": 0.08, "max_length": 32769},
        ),
        (
            f"{AUDIO}, {IN_TOKENS}, {BINS}",
            {
                "batch_type": "bucket",
                "bucket_duration_bins": SECONDS,
                "bucket_batch_size": (512, 128, 192),
            },
            {"token_equivalent_duration": 0.08},
        ),
        (
            f"{MIXED}, {IN_TOKENS}, {FLAT}, measure_total_length: false",
            {
                "batch_type": "bucket",
                "bucket_duration_bins": (0.8, 1.6, 2.4),
                "bucket_batch_size": (512, 128, 192),
                "token_buckets": ((10, 512), (20, 128), (30, 192)),
            },
            {"token_equivalent_duration": 0.08, "measure_total_length": False},
        ),
        (
            f"{AUDIO}, {IN_TOKENS}, {FLAT}",
            {"batch_type": "dynamic", "batch_tokens": 2560},
            {"token_equivalent_duration": 0.08},
        ),
        (
            f"{TEXT}, {IN_TOKENS}, batch_tokens: 4000, max_tokens: 500",
            {"batch_type": "dynamic", "batch_tokens": 4000},
            {"max_tokens": 500},
        ),
    ],
)
def test_audio_is_measured_in_tokens_where_the_loader_says_so(tmp_path, section, batches, filters):
    conf = loaded(tmp_path, f"model: {{train_ds: {{{section}}}}}").dataset_conf
    assert conf.batch_conf.model_dump(exclude_defaults=True) == batches
    assert conf.filter_conf.model_dump(exclude_defaults=True) == filters


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            f"{AUDIO}, use_multimodal_sampling: true, batch_tokens: 9",
            "write the seconds of a token",
        ),
        (f"{AUDIO}, batch_tokens: 9", "write use_multimodal_sampling: true and token_equivalent"),
    ],
)
def test_bounds_on_tokens_that_would_bound_no_audio_are_errors(tmp_path, section, message):
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, f"model: {{train_ds: {{{section}}}}}")


def test_bounds_on_tokens_beside_those_of_seconds_are_answered(tmp_path, caplog):
    loaded(tmp_path, f"model: {{train_ds: {{{AUDIO}, batch_duration: 30, max_tokens: 9}}}}")
    assert "train_ds.max_tokens: bounds audio only if audio is measured in tokens" in caplog.text
    section = f"{AUDIO}, {IN_TOKENS}, batch_tokens: 9, batch_duration: 30"
    loaded(tmp_path, f"model: {{train_ds: {{{section}}}}}")
    assert "batch_duration: not needed here, because use_multimodal_sampling" in caplog.text
