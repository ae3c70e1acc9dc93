from collections import Counter

import numpy as np
import pytest

from tests.support.data.mixtures import mixture, taken
from tests.support.data.synthetic import IndexOnlyCorpus
from wenet_uio.dataset.corpus.mixture import Mixture, Passes, WeightedCorpus


def test_every_pass_of_a_plain_corpus_is_the_corpus_and_has_no_state():
    corpus = IndexOnlyCorpus([3, 2])
    passes = Passes(corpus)
    assert passes.corpus_of(0) is passes.corpus_of(5) is corpus
    assert passes.offsets(5) == {}
    assert passes.starting_at(2, {"ab": 7}, {}).corpus_of(2) is corpus


def test_samples_of_a_plain_corpus_are_their_own_origin_and_have_one_source():
    corpus = IndexOnlyCorpus([3, 2])
    shards, rows = np.array([0, 1, 1]), np.array([2, 0, 1])
    assert [column.tolist() for column in corpus.origin(shards, rows)] == [[0, 1, 1], [2, 0, 1]]
    sources = corpus.shard_sources
    assert sources.names == ("synthetic",)
    assert sources.numbers(shards).tolist() == [0, 0, 0]
    assert not sources.take_turns
    assert sources.separate(shards, np.array([4, -1, 4])).tolist() == [4, -1, 4]


def test_offsets_count_what_was_read_of_every_source():
    mix = mixture((0.25, 0.25, 0.5), per_pass=100)
    names = mix.state_names
    assert names == [source.corpus.digest[:16] for source in mix.sources]
    assert Passes(mix).offsets(3) == dict(zip(names, (75, 75, 150), strict=True))
    resumed = Passes(mix).starting_at(3, {names[0]: 7}, {})  # a source without a state starts at 0
    assert resumed.offsets(3) == dict(zip(names, (7, 0, 0), strict=True))
    assert resumed.offsets(4) == dict(zip(names, (32, 25, 50), strict=True))


def test_a_source_in_front_of_the_others_leaves_their_offsets_and_streams_as_they_are():
    former = mixture((0.5, 0.5), ((30,) * 3, (20,) * 2), per_pass=40)
    front = IndexOnlyCorpus([25] * 2, seed=9)
    sources = [
        WeightedCorpus(front, 0.5),
        *(WeightedCorpus(source.corpus, 0.25) for source in reversed(former.sources)),
    ]
    now = Mixture("mixture", sources, 80, False)
    passes = Passes(now).starting_at(1, Passes(former).offsets(1), {})
    assert [passes.offsets(1)[name] for name in now.state_names] == [0, 20, 20]
    before, after = taken(Passes(former), 0)[0], taken(passes, 1)[0]
    for number in (0, 1):  # no utterance of the former pass comes again
        keys = [
            {mix.rows(shard).key(row) for shard, row in times if mix.source_of(shard) == place}
            for mix, times, place in ((former, before, number), (now, after, 2 - number))
        ]
        assert [len(each) for each in keys] == [20, 20]
        assert not keys[0] & keys[1]


def test_the_same_samples_twice_are_two_sources_with_offsets_of_their_own():
    corpus = IndexOnlyCorpus([20] * 2)
    mix = Mixture("mixture", [WeightedCorpus(corpus, 0.5), WeightedCorpus(corpus, 0.5)], 20, False)
    name = corpus.digest[:16]
    assert mix.state_names == [name, f"{name}/1"]
    assert Passes(mix).offsets(2) == {name: 20, f"{name}/1": 20}
    assert Passes(mix).starting_at(2, {f"{name}/1": 7}, {}).offsets(2) == {name: 0, f"{name}/1": 7}


def test_resumed_passes_take_the_same_samples():
    mix = mixture((0.25, 0.25, 0.5), per_pass=100)
    passes = Passes(mix)
    resumed = Passes(mix).starting_at(2, passes.offsets(2), passes.debts(2))
    assert taken(resumed, 3)[0] == taken(passes, 3)[0]


def test_weights_may_change_between_passes_and_every_source_resumes():
    before, after = mixture((0.25, 0.25, 0.5), per_pass=100), mixture((0.7, 0.1, 0.2), per_pass=100)
    passes = Passes(after).starting_at(2, Passes(before).offsets(2), {})
    seen = (
        taken(Passes(before), 0)[0]
        + taken(Passes(before), 1)[0]
        + taken(passes, 2)[0]
        + taken(passes, 3)[0]
    )
    first = [count for (shard, _), count in seen.items() if after.source_of(shard) == 0]
    assert sum(first) == 25 + 25 + 70 + 70
    assert max(first) == 1


def test_the_sources_of_a_pass_are_those_of_the_mixture():
    mix = mixture((0.5, 1e-9, 0.5))  # the second source has a quota of 0
    one_pass = Passes(mix).corpus_of(0)
    sources = one_pass.shard_sources
    shards = np.arange(one_pass.num_shards)
    assert sources.names == ("source 0", "source 1", "source 2")
    assert (
        sources.numbers(shards).tolist()
        == mix.source_of(one_pass.origin(shards, shards)[0]).tolist()
    )


def test_buckets_are_kept_apart_by_source_only_if_per_batch_is_set():
    shards, buckets = np.array([0, 1, 2, 3]), np.array([-1, 1, -1, 1])
    for per_batch, expected in ((False, 2), (True, 4), ("weighted", 4), ("round_robin", 4)):
        mix = mixture((0.5, 0.5), ((20,) * 2, (20,) * 2), per_batch=per_batch)
        sources = Passes(mix).corpus_of(0).shard_sources
        assert len(set(sources.separate(shards, buckets).tolist())) == expected
        assert sources.take_turns == (per_batch == "round_robin")


def counts(mix, passes, count):
    """(passes, sources) utterances that passes take of each source."""
    offsets = np.asarray([list(passes.offsets(number).values()) for number in range(count + 1)])
    return np.diff(offsets, axis=0)


@pytest.mark.third
@pytest.mark.parametrize(
    "shares",
    [
        (0.004, 0.004, 0.004, 0.988),
        (1 / 3, 1 / 3, 1 / 3),
        (0.0001, 0.9999),
        (0.05, 0.25, 0.7),
        (0.335, 0.335, 0.33),
    ],
)
@pytest.mark.parametrize("per_pass", [7, 100])
def test_what_a_pass_cannot_give_is_given_later(shares, per_pass):
    mix = mixture(shares, ((30,) * 3,) * len(shares), per_pass=per_pass)
    taken_of_pass = counts(mix, Passes(mix), 300)
    assert (taken_of_pass >= 0).all()
    assert (taken_of_pass.sum(1) == per_pass).all()
    exact = np.asarray(shares) * per_pass * np.arange(1, 301)[:, None]
    assert abs(taken_of_pass.cumsum(0) - exact).max() < 2


def test_a_resumed_run_takes_what_the_run_would_have_taken():
    mix = mixture((0.004, 0.013, 0.983), ((30,) * 3,) * 3, per_pass=100)
    whole = Passes(mix)
    for number in (1, 37, 120):
        resumed = Passes(mix).starting_at(number, whole.offsets(number), whole.debts(number))
        for later in (number, number + 1, number + 90):
            assert resumed.offsets(later) == whole.offsets(later)
            assert taken(resumed, later)[0] == taken(whole, later)[0]


def test_sources_without_remainders_owe_nothing():
    mix = mixture((0.25, 0.75), ((30,) * 3,) * 2, per_pass=100)
    assert Passes(mix).debts(9) == {}


@pytest.mark.parametrize("sizes", [((50,) * 6, (30,) * 3), ((50, 40, 30), (7,))])
def test_without_reshuffle_every_pass_over_whole_sources_takes_the_same_runs(sizes):
    totals = [sum(size) for size in sizes]
    mix = mixture([total / sum(totals) for total in totals], sizes)
    passes = [Passes(mix, reshuffle=False).corpus_of(number) for number in range(3)]
    first = passes[0]
    for other in passes[1:]:
        for name in ("shards", "first", "last", "rounds"):
            assert getattr(other, name).tolist() == getattr(first, name).tolist()


def test_without_reshuffle_a_pass_goes_on_where_the_last_one_left_a_source():
    mix = mixture((0.5, 0.5), ((30,) * 3, (20,) * 2), per_pass=60)
    passes = Passes(mix, reshuffle=False)
    seen = sum((taken(passes, number)[0] for number in range(3)), Counter())
    of_first = [times for (shard, _), times in seen.items() if shard < 3]
    assert of_first == [1] * 90  # 3 passes of 30


def test_an_utterance_that_comes_twice_in_a_pass_without_reshuffle_has_two_draws():
    mix = mixture((0.5, 0.5), ((30,), (20,)), per_pass=80)
    for number in range(2):
        one_pass = Passes(mix, reshuffle=False).corpus_of(number)
        hashes = [one_pass.rows(run).key_hash for run in range(one_pass.num_shards)]
        assert len(set(np.concatenate(hashes).tolist())) == 80
