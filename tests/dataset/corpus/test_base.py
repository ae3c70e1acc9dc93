import numpy as np
import pytest

from tests.support.data.mixtures import mixture
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.index import Stored
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.corpus.token_counts import TokenCounted
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

WORDS = Tokenizer(CharSplitter((), split_with_space=True), {"<blank>": 0, "<unk>": 1})
EVERY_LENGTH = {
    "quadratic": {
        "batch_conf": {"batch_type": "dynamic", "batch_duration": 5, "quadratic_duration": 2}
    },
    "two dimensions": {
        "batch_conf": {
            "batch_type": "bucket",
            "bucket_duration_bins": [[1, 1], [2, 3]],
            "bucket_batch_size": [8, 4],
        }
    },
    "filter": {"batch_conf": {"max_frames_in_batch": 1000}, "filter_conf": {"max_length": 70}},
}
"""Configs whose costs depend on the length of every sample."""


def expected(corpus, shards):
    rows = [corpus.rows(int(shard)) for shard in shards]
    return [
        np.concatenate([getattr(each, name) for each in rows]).tolist() for name in Stored._fields
    ]


def corpora(lists):
    raw, shard = (open_list(lists[kind], kind) for kind in ("raw", "shard"))
    mixed = Mixture(
        "mixture",
        [WeightedCorpus(raw, 0.3), WeightedCorpus(shard, 0.6), WeightedCorpus(raw, 0.1)],
        150,
        False,
    )
    counted = TokenCounted(shard, WORDS)
    passes = [Passes(mixed).corpus_of(number) for number in range(3)]
    return [
        raw,
        shard,
        mixed,
        counted,
        TokenCounted(raw, WORDS),
        *passes,
        Passes(mixture((0.5, 0.3, 0.2))).corpus_of(1),
    ]


def test_lengths_of_any_shards_are_those_of_their_rows(make_lists):
    random = np.random.default_rng(0)
    for corpus in corpora(make_lists(47, per_shard=4)):
        everything = np.arange(corpus.num_shards)
        choices = [
            everything,
            everything[1:3],
            everything[::-1],
            everything[1::2],
            random.permutation(everything),
        ]
        for shards in choices:
            assert [column.tolist() for column in corpus.lengths(shards)] == expected(
                corpus, shards
            )


def test_extremes_of_any_shards_are_those_of_their_rows(make_lists):
    for corpus in corpora(make_lists(47, per_shard=4)):
        for chosen in (slice(None), slice(2, 5), slice(1, None, 3), np.asarray([3, 0, 2])):
            rows = [corpus.rows(int(shard)) for shard in np.arange(corpus.num_shards)[chosen]]
            found = corpus.extremes(chosen)
            assert found.shortest.tolist() == [each.seconds.min() for each in rows]
            assert found.longest.tolist() == [each.seconds.max() for each in rows]
            assert found.shortest_text.tolist() == [each.text_length.min() for each in rows]
            assert found.longest_text.tolist() == [each.text_length.max() for each in rows]


def measure(name):
    return measure_of(
        DatasetConf.model_validate(EVERY_LENGTH[name]), training=True, text_length_is_tokens=True
    )


@pytest.mark.parametrize("name", EVERY_LENGTH)
def test_costs_and_filtered_samples_are_known_without_the_index_of_any_shard(
    make_lists, monkeypatch, name
):
    lists, rule = make_lists(40, per_shard=4), measure(name)
    raw, shard = (open_list(lists[kind], kind) for kind in ("raw", "shard"))
    units, filtered = rule.shard_units(raw).tolist(), rule.filtered(raw)
    monkeypatch.setattr(ShardCorpus, "rows", None)  # calling it would fail
    assert rule.shard_units(shard).tolist() == units
    assert rule.filtered(shard) == filtered
    assert bool(filtered) == (name != "quadratic")
