import itertools
import json
from collections import Counter

import pytest
import yaml

from tests.support.data.loading import TOKENIZER
from tests.support.data.mixtures import MEASURE, taken
from tests.support.data.nemo import tarred_source, write_tarred
from tests.support.data.tars import everything, wav
from wenet_uio.config import ConfigError, parse_config
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.open import as_planned, open_corpus, open_filtered, open_for, read_source
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.types import SampleRef
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

WORDS = Tokenizer(CharSplitter((), split_with_space=True), {"<blank>": 0, "<unk>": 1, "a": 2})
TOKENS_PER_SECOND = {"dataset_conf": {"filter_conf": {"max_tps": 30}}}
"""A filter that needs token counts."""


@pytest.fixture
def write(tmp_path, make_lists):
    """Write a yaml file of sources; RAW, SHARD and LONG are lists, SETS is a folder."""
    lists = make_lists(20)
    with open(lists["raw"]) as file, open(tmp_path / "long.list", "w") as long:
        # Durations in the list are used as they are, so the plan needs no other audio
        for line in file:
            long.write(json.dumps({**json.loads(line), "duration": 5.0}) + "\n")

    def to_file(content, name="mix.yaml"):
        path = tmp_path / name
        text = yaml.safe_dump(content).replace("RAW", lists["raw"]).replace("SHARD", lists["shard"])
        path.write_text(
            text.replace("LONG", str(tmp_path / "long.list")).replace("SETS", str(tmp_path))
        )
        return str(path)

    return to_file


def test_a_plain_list_is_opened_as_by_open_list(make_lists):
    raw = make_lists(5)["raw"]
    assert open_corpus(raw, "raw").digest == open_list(raw, "raw").digest


def in_turns(mix):
    """Source of each batch of the first pass, in order."""
    corpus = Passes(mix).corpus_of(0)
    plan = EpochPlan(corpus, MEASURE, seed=1, epoch=0, division=Division(1, 1))
    sources = corpus.shard_sources
    return [
        int(sources.numbers(batch.pieces[0].shards)[0])
        for batch in map(plan.batch, range(plan.num_batches))
    ]


def test_sources_that_take_turns_have_equally_many_batches_in_alternation(write):
    short, long = ({"type": "raw", "data_list": name} for name in ("RAW", "LONG"))
    path = write(
        {"sources": [short, long], "per_batch": "round_robin", "utterances_per_epoch": 2000}
    )
    mix = open_corpus(path, "raw", MEASURE)
    batches = in_turns(mix)
    counts = Counter(batches)
    assert abs(counts[0] - counts[1]) <= 1
    assert counts[0] > 10
    assert sum(a == b for a, b in itertools.pairwise(batches)) <= 1
    assert mix.quotas[0] > 1.5 * mix.quotas[1]  # short utterances fill a batch less


@pytest.mark.parametrize("per_batch", ["weighted", "round_robin"])
def test_a_source_without_utterances_for_its_share_of_the_batches_is_refused_by_name(
    write, per_batch
):
    path = write([{"type": "raw", "data_list": "RAW"}, {"type": "raw", "data_list": "LONG"}])
    content = {"sources": yaml.safe_load(open(path)), "per_batch": per_batch}
    config = parse_config(
        {"dataset_conf": {"filter_conf": {"min_length": 10, "max_length": 300}}}, "test"
    )
    with pytest.raises(
        ListError, match=r"long.list: .*leaves no utterance for its share .*per_batch: " + per_batch
    ):
        open_for(config, read_source(write(content), "raw"), training=True, tokenizer=TOKENIZER)
    open_for(
        config,
        read_source(write({**content, "per_batch": True}), "raw"),
        training=True,
        tokenizer=TOKENIZER,
    )
    open_for(config, read_source(write(content), "raw"), training=False, tokenizer=TOKENIZER)


def test_weights_can_be_shares_of_batches(write):
    sources = [
        {"type": "raw", "data_list": name, "weight": w} for name, w in (("RAW", 3), ("LONG", 1))
    ]
    path = write({"sources": sources, "per_batch": "weighted", "utterances_per_epoch": 2000})
    counts = Counter(in_turns(open_corpus(path, "raw", MEASURE)))
    assert counts[0] / counts[1] == pytest.approx(3, rel=0.1)


def test_nested_weights_multiply_and_outer_tags_win(write):
    raw, nemo = {"type": "raw", "data_list": "RAW"}, {"type": "nemo", "manifest_filepath": "RAW"}
    inner = write([{**raw, "weight": 3}, {**nemo, "weight": 1}], "inner.yaml")
    path = write(
        [
            {"type": "group", "input_cfg": inner, "weight": 0.5, "tags": {"lang": "en"}},
            {
                "type": "shard",
                "data_list": "SHARD",
                "weight": 0.5,
                "tags": {"lang": "zh", "far": True},
            },
        ]
    )
    mix = open_corpus(path, "raw")
    assert [source.share for source in mix.sources] == pytest.approx([0.375, 0.125, 0.5])
    assert sum(mix.quotas) == 60
    refs = [SampleRef(int(shard), 0) for shard in range(mix.num_shards)]
    assert [mix.read(ref).extra.get("lang") for ref in refs] == ["en"] * 4 + ["zh"] * 2
    assert mix.read(refs[-1]).extra["far"] is True


def test_without_weights_every_utterance_is_read_once_or_as_often_as_repeated(write):
    path = write(
        [{"type": "raw", "data_list": "RAW", "repeat": 2}, {"type": "shard", "data_list": "SHARD"}]
    )
    mix = open_corpus(path, "raw")
    assert mix.quotas == [40, 20]
    short_too = measure_of(DatasetConf(filter_conf={"min_length": 1}), training=True)
    assert sorted(taken(Passes(mix), 0, short_too)[0].values()) == [1] * 20 + [2] * 20


def test_temperature_levels_the_shares(write):
    sources = [
        {"type": "raw", "data_list": "RAW", "weight": 16},
        {"type": "shard", "data_list": "SHARD", "weight": 1},
    ]
    shares = [
        open_corpus(write({"sources": sources, "temperature": t}), "raw").sources[0].share
        for t in (1.0, 2.0, 1000.0)
    ]
    assert shares == pytest.approx([16 / 17, 4 / 5, 0.5], abs=1e-3)


def test_an_input_cfg_of_nemo_is_opened(write, tmp_path):
    for name in ("x", "y", "z"):
        write_tarred(tmp_path, name)
    path = write(
        {
            "input_cfg": [
                {
                    "type": "group",
                    "weight": 0.7,
                    "tags": {"task": "asr"},
                    "input_cfg": [
                        tarred_source(
                            "x", weight=0.6, tags={"lang": "en"}, shuffle=True, shard_seed="trng"
                        ),
                        tarred_source(
                            "y", weight=0.4, tags={"lang": "pl"}, skip_missing_manifest_entries=True
                        ),
                    ],
                },
                {
                    "type": "group",
                    "weight": 0.3,
                    "tags": {"task": "ast"},
                    "input_cfg": [tarred_source("z", weight=1)],
                },
            ]
        }
    )
    mix = open_corpus(path, "raw")
    assert [source.share for source in mix.sources] == pytest.approx([0.42, 0.28, 0.3])
    assert [(u.key, u.text, u.extra["task"]) for u in everything(mix)][:5] == [
        ("x00", "a", "asr"),
        ("x01", "b", "asr"),
        ("x10", "c", "asr"),
        ("x11", "d", "asr"),
        ("y00", "a", "asr"),
    ]
    assert {u.extra.get("lang") for u in everything(mix)} == {"en", "pl", None}


def test_buckets_of_nemo_are_one_source(write, tmp_path):
    write_tarred(tmp_path, "x")
    write_tarred(tmp_path, "y")
    x, y = tarred_source("x"), tarred_source("y")
    path = write([{name: [[x[name]], [y[name]]] if name != "type" else x[name] for name in x}])
    assert [u.key for u in everything(open_corpus(path, "raw"))][3:6] == ["x11", "y00", "y01"]


def test_several_manifests_of_one_source_divide_its_share(write, tmp_path):
    for number in (0, 1, 2):
        (tmp_path / f"{number}.wav").write_bytes(wav())
        line = json.dumps({"audio_filepath": f"{number}.wav", "text": "a"}) + "\n"
        (tmp_path / f"manifest_{number}.json").write_text(line * (number + 1))
    several = {"type": "nemo", "manifest_filepath": "SETS/manifest_{0..1}.json", "weight": 3}
    path = write(
        [several, {"type": "nemo", "manifest_filepath": "SETS/manifest_2.json", "weight": 1}]
    )
    assert [source.share for source in open_corpus(path, "raw").sources] == pytest.approx(
        [0.25, 0.5, 0.25]
    )


def test_sources_inherit_the_keys_of_their_group(write, tmp_path):
    write_tarred(tmp_path, "x", field="answer")
    write_tarred(tmp_path, "y", field="reply")
    sources = [tarred_source("x"), tarred_source("y", text_field="reply")]
    path = write(
        [{"type": "group", "text_field": "answer", "input_cfg": write(sources, "inner.yaml")}]
    )
    assert [u.text for u in everything(open_corpus(path, "raw"))] == list("abcdabcd")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [{"type": "raw", "data_lst": "a"}],
            "sources.0.data_lst: unknown key; did you mean 'data_list'",
        ),
        ([{"type": "rwa", "data_list": "a"}], "type"),
        ([{"type": "raw"}], "needs data_list"),
        ([{"type": "group", "data_list": "a"}], "a source of type group needs input_cfg"),
        (
            [{"type": "raw", "data_list": "a", "weight": 1}, {"type": "raw", "data_list": "b"}],
            "1 of 2 sources",
        ),
        (
            [
                {
                    "type": "group",
                    "input_cfg": [
                        {"type": "raw", "data_list": "a", "weight": 1},
                        {"type": "raw", "data_list": "b"},
                    ],
                }
            ],
            "sources.0: .*1 of 2 sources",
        ),
        ("text", "expected a list of sources"),
        ([{"type": "txt", "data_list": "a"}], "a source of type txt needs paths"),
        ([{"type": "raw", "data_list": "a", "paths": "b"}], "a source of type raw has no paths"),
        ([{"type": "txt_pair", "sources_path": "a"}], "unknown key; did you mean 'source_paths'"),
        (
            {
                "sources": [{"type": "raw", "data_list": "a", "weight": 1}],
                "per_batch": "round_robin",
            },
            "leave the w",
        ),
    ],
)
def test_a_file_with_impossible_sources_is_refused(write, content, message):
    with pytest.raises(ConfigError, match=message):
        open_corpus(write(content), "raw")


def test_tokens_are_counted_if_training_needs_the_counts(make_lists):
    data, config = make_lists(6)["raw"], parse_config(TOKENS_PER_SECOND, "test")
    corpus, measure = open_for(config, read_source(data, "raw"), training=True, tokenizer=WORDS)
    assert isinstance(corpus, TokenCounted)
    assert measure == measure_of(config.dataset_conf, training=True, text_length_is_tokens=True)
    corpus, measure = open_for(config, read_source(data, "raw"), training=False, tokenizer=WORDS)
    assert not isinstance(corpus, TokenCounted)
    assert not measure.text_length_is_tokens
    corpus, measure = open_for(
        parse_config({}, "test"), read_source(data, "raw"), training=True, tokenizer=WORDS
    )
    assert not isinstance(corpus, TokenCounted)
    assert not measure.text_length_is_tokens


def test_characters_that_are_tokens_are_not_counted_again(make_lists):
    data, config = make_lists(6)["raw"], parse_config(TOKENS_PER_SECOND, "test")
    corpus, measure = open_for(config, read_source(data, "raw"), training=True, tokenizer=TOKENIZER)
    assert not isinstance(corpus, TokenCounted)
    assert measure.text_length_is_tokens


def test_a_tokenizer_is_built_from_the_config_only_if_tokens_are_counted(make_lists):
    data = make_lists(6)["raw"]
    _, measure = open_for(
        parse_config({"tokenizer": "char"}, "test"), read_source(data, "raw"), training=True
    )
    assert measure.text_length_is_tokens
    _, measure = open_for(
        parse_config({"tokenizer": "bpe"}, "test"), read_source(data, "raw"), training=True
    )
    assert not measure.text_length_is_tokens
    with pytest.raises(ValueError, match="symbol_table_path"):
        open_for(parse_config(TOKENS_PER_SECOND, "test"), read_source(data, "raw"), training=True)


def test_an_open_corpus_is_planned_as_an_opened_one(make_lists):
    data, config = make_lists(6)["raw"], parse_config(TOKENS_PER_SECOND, "test")
    opened, measure = open_for(config, read_source(data, "raw"), training=True, tokenizer=WORDS)
    planned, same = as_planned(open_list(data, "raw"), config.dataset_conf, WORDS)
    assert (planned.digest, same) == (opened.digest, measure)


def test_tools_that_choose_batches_open_data_with_the_filters_alone(make_lists):
    conf = DatasetConf(
        batch_conf={"batch_type": "static", "batch_size": 3}, filter_conf={"max_length": 100}
    )
    corpus, measure = open_filtered(conf, read_source(make_lists(6)["raw"], "raw"), WORDS)
    assert isinstance(corpus, TokenCounted)
    assert measure == measure_of(
        DatasetConf(filter_conf={"max_length": 100}), training=True, text_length_is_tokens=True
    )
    assert not isinstance(
        open_filtered(conf, read_source(make_lists(6)["raw"], "raw"), None)[0], TokenCounted
    )


def test_all_files_of_sources_are_read_before_a_source_is_opened(write, tmp_path):
    write([{"type": "raw", "data_list": "RAW"}], "inner.yaml")
    group = {"type": "group", "input_cfg": "SETS/inner.yaml"}
    outer = write([{"type": "group", "input_cfg": [group, group]}], "outer.yaml")

    source = read_source(outer, "raw")
    for file in ("outer.yaml", "inner.yaml"):
        (tmp_path / file).unlink()
    corpus, _ = open_for(parse_config({}, "test"), source, training=True, tokenizer=TOKENIZER)
    assert len(corpus.corpora) == 2


def test_a_mixture_has_the_name_of_its_file_however_it_is_opened(write):
    path = write([{"type": "raw", "data_list": "RAW"}])
    loader = build_loader(path, "raw", parse_config({}, "test"), TOKENIZER, training=True)
    assert [loader.corpus.data_list, open_corpus(path, "raw").data_list] == [path, path]
