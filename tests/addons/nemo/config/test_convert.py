import re

import pytest
import yaml

from wenet_uio.config import ConfigError, load_config, parse_config, save_config

TARRED = {
    "manifest_filepath": [["a.json"], ["b.json"]],
    "tarred_audio_filepaths": [["a_{0..1}.tar"], ["b_{0..1}.tar"]],
}
TEXT = {"input_cfg": [{"type": "txt", "paths": "a.txt"}], "batch_tokens": 100}
AUDIO = {"manifest_filepath": "a.json", "batch_duration": 60}


def parsed(**section):
    return parse_config({"train_ds": section}, "t.yaml")


def test_batches_of_buckets_are_those_of_the_document():
    config = parsed(**TARRED, batch_size=1, bucketing_batch_size=8)
    assert [source.batch_conf.batch_size for source in config.data.sources] == [16, 8]
    assert config.data.per_batch is True
    config = parsed(**TARRED, bucketing_batch_size=[4, 2], bucketing_weights=[2, 1])
    assert [(source.batch_conf.batch_size, source.repeat) for source in config.data.sources] == [
        (4, 2),
        (2, 1),
    ]
    raw = {"manifest_filepath": [["a.json"], ["b.json"]], "bucketing_weights": [1, 3]}
    assert [(source.type, source.repeat) for source in parsed(**raw).data.sources] == [
        ("nemo", 1),
        ("nemo", 3),
    ]


@pytest.mark.parametrize(
    ("strategy", "order"),
    [("synced_randomized", "synced"), ("fixed_order", "rising"), ("fully_randomized", "random")],
)
def test_the_strategies_of_buckets_are_orders_of_length(strategy, order):
    assert (
        parsed(**TARRED, bucketing_strategy=strategy).dataset_conf.batch_conf.length_order == order
    )


@pytest.mark.parametrize(
    ("fusion", "per_batch", "weights"),
    [
        (None, "round_robin", [None, None]),
        ("zip", "zip", [None, None]),
        ("randomized_round_robin", "weighted", [3, 1]),
    ],
)
def test_several_loaders_are_groups_with_batches_of_their_own(fusion, per_batch, weights):
    keys = {"sampler_fusion": fusion} if fusion else {}
    keys |= {"sampler_weights": {"speech": 3, "words": 1}} if weights[0] else {}
    config = parsed(multi_config=True, num_workers=4, speech=AUDIO, words=TEXT, **keys)
    assert config.data.per_batch == per_batch
    speech, words = config.data.sources
    assert (speech.batch_conf.batch_duration, words.batch_conf.batch_tokens) == (60, 100)
    assert [speech.weight, words.weight] == weights


def test_filters_of_one_loader_of_several_are_those_of_its_group():
    speech, words = {**AUDIO, "max_duration": 9.0}, {**TEXT, "max_tokens": 50, "min_tokens": 2}
    config = parse_config(
        {
            "train_ds": {"multi_config": True, "speech": speech, "words": words},
            "dataset_conf": {"filter_conf": {"min_length": 1}},
        },
        "t.yaml",
    )
    of_speech, of_words = (source.filter_conf for source in config.data.sources)
    assert (of_speech.max_duration, of_speech.max_tokens, of_speech.min_length) == (9, None, 1)
    assert (of_words.max_duration, of_words.max_tokens, of_words.min_tokens) == (None, 50, 2)
    shared = {**AUDIO, "max_duration": 9.0}
    config = parsed(multi_config=True, a=shared, b=shared)
    assert config.dataset_conf.filter_conf.max_duration == 9
    assert [source.filter_conf for source in config.data.sources] == [None, None]


def test_negative_bounds_are_nemos_word_for_none():
    conf = parsed(**AUDIO, min_duration=-1, min_tps=-1, min_tpt=-1, max_duration=300)
    filters = conf.dataset_conf.filter_conf
    assert (filters.min_duration, filters.min_tps, filters.min_tpt) == (0, 0, 0)
    assert filters.max_length > 30000


@pytest.mark.parametrize("kind", ["txt", "txt_pair", "multimodal_conversation"])
def test_a_static_batch_size_counts_texts_and_conversations(kind):
    files = {"txt": ["paths"], "txt_pair": ["source_path", "target_path"]}.get(
        kind, ["manifest_filepath"]
    )
    conf = parsed(
        input_cfg=[{"type": kind, **dict.fromkeys(files, "a")}], batch_size=4
    ).dataset_conf.batch_conf
    assert (conf.batch_type, conf.batch_size, conf.batch_tokens) == ("static", 4, None)


SPEECH = {"manifest_filepath": "t.json", "speakers_filepath": "s.txt", "max_words": 45}


@pytest.mark.parametrize(
    ("sampling", "weights", "temperature"),
    [
        ({}, [None, None], 1),
        ({"asr_tts_sampling_technique": "round-robin"}, [1, 1], 1),
        (
            {"asr_tts_sampling_technique": "random", "asr_tts_sampling_probabilities": [0.7, 0.3]},
            [0.7, 0.3],
            1,
        ),
        ({"asr_tts_sampling_technique": "temperature"}, [None, None], 5),
        (
            {"asr_tts_sampling_technique": "temperature", "asr_tts_sampling_temperature": 2},
            [None, None],
            2,
        ),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_text_of_a_hybrid_model_is_a_source_that_an_operator_speaks(
    sampling, weights, temperature, inside
):
    keys = {"text_data": {**SPEECH, **sampling}} if inside else {"text_data": SPEECH, **sampling}
    data = parsed(**AUDIO, **keys).data
    assert [source.weight for source in data.sources] == weights
    assert data.temperature == temperature
    text = data.sources[1]
    assert (text.type, text.manifest_filepath, text.speakers_filepath) == (
        "tts_text",
        "t.json",
        "s.txt",
    )


def test_text_of_a_hybrid_model_needs_no_audio():
    (source,) = parsed(
        text_data=SPEECH, batch_duration=60, asr_tts_sampling_technique="random"
    ).data.sources
    assert source.type == "tts_text"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"text_data": {"speakers_filepath": "s"}}, "train_ds.text_data: needs manifest_filepath"),
        (
            {"text_data": {**SPEECH, "max_word": 4}},
            "train_ds.text_data.max_word: unknown key; known: manifest",
        ),
        (
            {"text_data": SPEECH, "asr_tts_sampling_technique": "zip"},
            "'zip' is unknown; known: random",
        ),
        (
            {"text_data": SPEECH, "asr_tts_sampling_technique": "random"},
            "expected the shares of audio and of text",
        ),
    ],
)
def test_text_of_a_hybrid_model_that_cannot_be_read_is_one_line(keys, message):
    with pytest.raises(ConfigError, match=message) as raised:
        parsed(**AUDIO, **keys)
    assert len(str(raised.value).splitlines()) == 1


def test_keys_of_train_yaml_and_of_nemo_join():
    values = {
        "dataset_conf": {"filter_conf": {"min_duration": 1.0}, "shuffle": True},
        "max_epoch": 3,
    }
    section = {
        **AUDIO,
        "max_duration": 9.0,
        "shuffle": False,
        "sample_rate": 8000,
        "tarred_shard_strategy": "replicate",
    }
    config = parse_config({**values, "train_ds": section}, "t.yaml")
    conf = config.dataset_conf
    assert (conf.filter_conf.min_duration, conf.filter_conf.max_duration) == (1.0, 9.0)
    assert (conf.shuffle, conf.partition, conf.resample_conf.resample_rate) == (False, False, 8000)


def test_train_ds_may_be_the_path_of_a_yaml_and_the_run_keeps_the_converted_keys(tmp_path):
    (tmp_path / "loader.yaml").write_text(yaml.safe_dump({"model": {"train_ds": AUDIO}}))
    config = parse_config({"train_ds": str(tmp_path / "loader.yaml")}, "t.yaml")
    save_config(config, tmp_path / "train.yaml")
    assert load_config(tmp_path / "train.yaml").model_dump() == config.model_dump()
    assert "train_ds" not in (tmp_path / "train.yaml").read_text()


@pytest.mark.parametrize("prefix", ["", "model.", "++model.", "+"])
def test_overrides_of_nemo_work_with_their_prefixes(tmp_path, prefix):
    (tmp_path / "train.yaml").write_text("{}")
    config = load_config(
        tmp_path / "train.yaml", [f"{prefix}train_ds.manifest_filepath=a_{{0..3}}.json"]
    )
    assert config.data.sources[0].manifest_filepath == "a_{0..3}.json"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"batch_duratoin": 3},
            "train_ds.batch_duratoin: unknown key; did you mean 'batch_duration'?",
        ),
        (
            {**AUDIO, "bucketing_batch_size": 4},
            "need buckets: write manifest_filepath as lists of lists",
        ),
        (
            {**TARRED, "bucketing_batch_size": [4]},
            "expected 2 numbers, one for each bucket, found [4]",
        ),
        (
            {**TARRED, "bucketing_strategy": "x"},
            "'x' is unknown; known: synced_randomized, fixed_order",
        ),
        ({"is_tarred": True, "manifest_filepath": "a"}, "is_tarred: needs tarred_audio_filepaths"),
        ({**AUDIO, "tarred_shard_strategy": "x"}, "'x' is unknown; known: scatter, replicate"),
        (
            {**TEXT, "batch_tokens": None, "bucket_batch_size": [4]},
            "needs as many bucket_duration_bins; or write",
        ),
        ({"quadratic_duration": 3}, "quadratic_duration: needs batch_duration; write both"),
        ({"bucket_batch_size": [3]}, "bucket_batch_size: needs bucket_duration_bins"),
        ({"max_tps": []}, "max_tps: the list is empty"),
        (
            {"multi_config": True, "sampler_fusion": "x", "a": AUDIO},
            "sampler_fusion: 'x' is unknown",
        ),
        ({"multi_config": True, "a": {"batch_size": 3}}, "train_ds.a: names no data"),
        (
            {"multi_config": True, "a": {**AUDIO, "seed": 1}, "b": {**AUDIO, "seed": 2}},
            "seed: applies to the whole run, and is 1 in one loader and 2 in another",
        ),
        (
            {"multi_config": True, "a": {**AUDIO, "perturb_speed": True}},
            "perturb_speed applies to the whole run; write it beside multi_config",
        ),
    ],
)
def test_settings_without_an_equal_are_one_line_that_says_what_to_write(section, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parsed(**section)
    assert "\n" not in str(caught.value)


def test_a_model_of_nemo_is_no_model_of_this_project():
    with pytest.raises(
        ConfigError,
        match=re.escape("the architecture of NeMo (encoder) is not read; write at the top"),
    ):
        parse_config({"model": {"train_ds": AUDIO, "encoder": {}}}, "t.yaml")
    with pytest.raises(ConfigError, match="data and train_ds both name training data"):
        parse_config({"data": "a.list", "train_ds": AUDIO}, "t.yaml")
    with pytest.raises(ConfigError, match="train_ds: expected keys of NeMo's loader"):
        parse_config({"train_ds": 3}, "t.yaml")
