import itertools
import json
from collections import Counter

import pytest
import yaml

from tests.dataset.support.synthetic import IndexOnlyCorpus
from wenet_uio.config import ConfigError
from wenet_uio.config.dataset import BatchConf, DatasetConf
from wenet_uio.dataset.corpus.mixture import Mixture, Source, exact_quotas
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.passes import Passes, origin, sources_of
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.plan.epoch_plan import EpochPlan
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.types import SampleRef
from wenet_uio.diagnose.plan_report import report_plan

MEASURE = measure_of(DatasetConf(batch_conf=BatchConf(batch_type="dynamic", max_frames_in_batch=6000)), training=True)


def mixture(shares, sizes=((50,) * 6, (30,) * 3, (20,)), per_pass=None, per_batch=False):
    corpora = [IndexOnlyCorpus(counts, seed=number) for number, counts in enumerate(sizes)]
    for number, corpus in enumerate(corpora):
        corpus.data_list = f"source {number}"
    sources = [Source(corpus, share, {"from": corpus.data_list}) for corpus, share in zip(corpora, shares, strict=True)]
    return Mixture("mixture", sources, per_pass or sum(map(sum, sizes)), per_batch)


def taken(mix, data_pass, passes=None):
    """Times that a pass plans each (source, utterance), and the sources of each batch."""
    corpus = (passes or Passes(mix)).corpus_of(data_pass)
    plan = EpochPlan(corpus, MEASURE, seed=1, epoch=data_pass, lanes=1)
    times, kinds = Counter(), []
    for index in range(plan.num_batches):
        for piece in plan.batch(index).pieces:
            shards, rows = origin(corpus, piece.shards, piece.rows)
            sources = mix.source_of(shards).tolist()
            kinds.append(set(sources))
            times.update(zip(sources, shards.tolist(), rows.tolist(), strict=True))
    return times, kinds


def test_quotas_are_exact_and_sum_to_the_total():
    assert exact_quotas([0.5, 0.3, 0.2], 101) == [51, 30, 20]
    assert sum(exact_quotas([1, 1, 1], 100)) == 100


@pytest.mark.parametrize("shares", [(0.1, 0.2, 0.7), (0.98, 0.01, 0.01)])
def test_every_pass_takes_the_quota_of_every_source(shares):
    mix = mixture(shares)
    for data_pass in range(3):
        by_source = Counter()
        for (source, _, _), count in taken(mix, data_pass)[0].items():
            by_source[source] += count
        assert [by_source[number] for number in range(3)] == mix.quotas


def test_a_source_rotates_through_all_its_utterances_before_it_repeats_one():
    mix = mixture((0.25, 0.25, 0.5), per_pass=200)
    seen = Counter()
    for data_pass in range(6):
        seen += taken(mix, data_pass)[0]
    for number, (size, quota) in enumerate(zip((300, 90, 20), mix.quotas, strict=True)):
        counts = [count for (source, _, _), count in seen.items() if source == number]
        assert sum(counts) == 6 * quota
        assert len(counts) == size
        assert max(counts) - min(counts) <= 1


def test_mixed_batches_hold_several_sources_and_pure_ones_a_single():
    assert max(map(len, taken(mixture((0.4, 0.3, 0.3)), 0)[1])) > 1
    pure = mixture((0.4, 0.3, 0.3), per_batch=True)
    times, kinds = taken(pure, 0)
    assert set(map(len, kinds)) == {1}
    assert sum(times.values()) == sum(pure.quotas)


def in_turns(mix):
    """Source of each batch of the first pass, in order."""
    corpus = Passes(mix).corpus_of(0)
    plan = EpochPlan(corpus, MEASURE, seed=1, epoch=0, lanes=1)
    sources = sources_of(corpus)
    return [int(sources.numbers(batch.pieces[0].shards)[0]) for batch in map(plan.batch, range(plan.num_batches))]


def test_sources_that_take_turns_have_equally_many_batches_one_after_the_other(write):
    short, long = ({"type": "raw", "data_list": name} for name in ("RAW", "LONG"))
    path = write({"sources": [short, long], "per_batch": "round_robin", "utterances_per_epoch": 2000})
    mix = open_corpus(path, "raw", MEASURE)
    batches = in_turns(mix)
    counts = Counter(batches)
    assert abs(counts[0] - counts[1]) <= 1
    assert counts[0] > 10
    assert sum(a == b for a, b in itertools.pairwise(batches)) <= 1
    assert mix.quotas[0] > 1.5 * mix.quotas[1]  # short utterances fill a batch less


def test_weights_can_be_shares_of_batches(write):
    sources = [{"type": "raw", "data_list": name, "weight": w} for name, w in (("RAW", 3), ("LONG", 1))]
    path = write({"sources": sources, "per_batch": "weighted", "utterances_per_epoch": 2000})
    counts = Counter(in_turns(open_corpus(path, "raw", MEASURE)))
    assert counts[0] / counts[1] == pytest.approx(3, rel=0.1)


def test_weights_may_change_between_passes_and_every_source_resumes():
    before = mixture((0.25, 0.25, 0.5), per_pass=100)
    seen = taken(before, 0)[0] + taken(before, 1)[0]
    after = mixture((0.7, 0.1, 0.2), per_pass=100)
    passes = Passes(after).starting_at(2, Passes(before).offsets(2))
    seen += taken(after, 2, passes)[0] + taken(after, 3, passes)[0]
    first = [count for (source, _, _), count in seen.items() if source == 0]
    assert sum(first) == 25 + 25 + 70 + 70
    assert max(first) == 1


def test_an_utterance_taken_twice_is_augmented_differently():
    corpus = Passes(mixture((0.05, 0.05, 0.9))).corpus_of(0)
    plan = EpochPlan(corpus, MEASURE, seed=1, epoch=0, lanes=1)
    seeds = [int(s) for t in range(plan.num_batches) for piece in plan.batch(t).pieces for s in piece.seeds]
    assert len(set(seeds)) == len(seeds) == 410


def test_a_report_names_the_mix():
    report = report_plan(mixture((0.5, 0.3, 0.2)), MEASURE, seed=1, epoch=2, world_size=2)
    assert report.sources == {"source 0": 205, "source 1": 123, "source 2": 82}
    assert (report.lost, report.duplicated) == (0, 0)


@pytest.fixture
def write(tmp_path, make_lists):
    lists = make_lists(20)
    with open(lists["raw"]) as file, open(tmp_path / "long.list", "w") as long:
        for line in file:  # stated durations are believed, so the plan needs no other audio
            long.write(json.dumps({**json.loads(line), "duration": 5.0}) + "\n")

    def to_file(content, name="mix.yaml"):
        path = tmp_path / name
        text = yaml.safe_dump(content).replace("RAW", lists["raw"]).replace("SHARD", lists["shard"])
        path.write_text(text.replace("LONG", str(tmp_path / "long.list")))
        return str(path)

    return to_file


def test_nested_weights_multiply_and_outer_tags_win(write):
    raw, nemo = {"type": "raw", "data_list": "RAW"}, {"type": "nemo", "manifest_filepath": "RAW"}
    inner = write([{**raw, "weight": 3}, {**nemo, "weight": 1}], "inner.yaml")
    path = write(
        [
            {"type": "group", "input_cfg": inner, "weight": 0.5, "tags": {"lang": "en"}},
            {"type": "shard", "data_list": "SHARD", "weight": 0.5, "tags": {"lang": "zh", "far": True}},
        ]
    )
    mix = open_corpus(path, "raw")
    assert [source.share for source in mix.sources] == pytest.approx([0.375, 0.125, 0.5])
    assert sum(mix.quotas) == 60
    refs = [SampleRef(int(shard), 0) for shard in range(mix.num_shards)]
    assert [mix.read(ref).extra.get("lang") for ref in refs] == ["en"] * 4 + ["zh"] * 2
    assert mix.read(refs[-1]).extra["far"] is True


def test_without_weights_every_utterance_is_read_once_or_as_often_as_repeated(write):
    path = write([{"type": "raw", "data_list": "RAW", "repeat": 2}, {"type": "shard", "data_list": "SHARD"}])
    mix = open_corpus(path, "raw")
    assert mix.quotas == [40, 20]
    assert max(taken_real(mix).values()) == 2


def taken_real(mix):
    measure = measure_of(DatasetConf(filter_conf={"min_length": 1}), training=True)
    plan = EpochPlan(Passes(mix).corpus_of(0), measure, seed=1, epoch=0, lanes=1)
    keys = Counter()
    for index in range(plan.num_batches):
        for piece in plan.batch(index).pieces:
            shards, rows = origin(plan.corpus, piece.shards, piece.rows)
            keys.update(zip(shards.tolist(), rows.tolist(), strict=True))
    return keys


def test_temperature_levels_the_shares(write):
    sources = [{"type": "raw", "data_list": "RAW", "weight": 16}, {"type": "shard", "data_list": "SHARD", "weight": 1}]
    shares = [
        open_corpus(write({"sources": sources, "temperature": t}), "raw").sources[0].share for t in (1.0, 2.0, 1000.0)
    ]
    assert shares == pytest.approx([16 / 17, 4 / 5, 0.5], abs=1e-3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "raw", "data_lst": "a"}], "sources.0.data_lst: unknown key; did you mean 'data_list'"),
        ([{"type": "rwa", "data_list": "a"}], "type"),
        ([{"type": "raw"}], "needs data_list"),
        ([{"type": "group", "data_list": "a"}], "a source of type group needs input_cfg"),
        ([{"type": "raw", "data_list": "a", "weight": 1}, {"type": "raw", "data_list": "b"}], "1 of 2 sources"),
        (
            [
                {
                    "type": "group",
                    "input_cfg": [{"type": "raw", "data_list": "a", "weight": 1}, {"type": "raw", "data_list": "b"}],
                }
            ],
            "sources.0: .*1 of 2 sources",
        ),
        ("text", "expected a list of sources"),
        ([{"type": "txt", "data_list": "a"}], "a source of type txt needs paths"),
        ([{"type": "raw", "data_list": "a", "paths": "b"}], "a source of type raw has no paths"),
        ([{"type": "txt_pair", "source_path": "a"}], "unknown key; did you mean 'source_paths'"),
        (
            {"sources": [{"type": "raw", "data_list": "a", "weight": 1}], "per_batch": "round_robin"},
            "leave the w",
        ),
    ],
)
def test_a_file_that_does_not_mix_is_refused(write, content, message):
    with pytest.raises(ConfigError, match=message):
        open_corpus(write(content), "raw")


def test_a_plain_list_is_opened_as_ever(make_lists):
    raw = make_lists(5)["raw"]
    assert open_corpus(raw, "raw").digest == open_list(raw, "raw").digest
