"""Examples of NeMo's documents on 1, 2 and 3 ranks: shares, filters and order, counted by hand."""

import json
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import soundfile

from tests.support.data.ranks import steps_of_ranks
from wenet_uio.config import parse_config
from wenet_uio.dataset import LoaderOptions, build_loader
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

RATE = 16000
SECONDS = {"a": [0.5] * 40, "b": [1.0] * 40, "c": [0.25 + 0.05 * n for n in range(40)]}
CHARACTERS = Tokenizer(
    CharSplitter(),
    {unit: number for number, unit in enumerate(["<blank>", "<unk>", *"xyz▁", "<sos/eos>"])},
)
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Manifests a, b and c of 40 utterances each, and a text with 40 lines."""
    folder = tmp_path_factory.mktemp("nemo")
    rng = np.random.default_rng(0)
    for name, lengths in SECONDS.items():
        lines = []
        for number, seconds in enumerate(lengths):
            path = folder / f"{name}{number:02d}.wav"
            samples = rng.integers(-999, 999, round(seconds * RATE), dtype=np.int16)
            soundfile.write(path, samples, RATE)
            lines.append({"audio_filepath": path.name, "duration": seconds, "text": "x y"})
        (folder / f"{name}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def manifest(folder, name, **keys):
    return {"type": "nemo", "manifest_filepath": str(folder / f"{name}.json"), **keys}


def steps_of(train_ds, ranks, epochs=1, *, characters=False):
    """Return the steps of some epochs: for each the batches of all ranks, each a list of keys.

    With `characters` each character of a text is a token.
    """
    keys = {"fbank_conf": {"num_mel_bins": 10}}
    config = parse_config({"train_ds": train_ds, "dataset_conf": keys}, "train.yaml")
    tokenizer = CHARACTERS if characters else None
    return steps_of_ranks(config, config.data, "raw", ranks, epochs, tokenizer)


def source(key):
    return key.removesuffix(".wav")[0]


def seconds(key):
    return SECONDS[source(key)][int(key.removesuffix(".wav")[1:])]


def counts(steps):
    return Counter(source(key) for step in steps for batch in step for key in batch)


@RANKS
def test_weights_of_nested_groups_are_shares_of_the_epoch(folder, ranks):
    group = {
        "type": "group",
        "weight": 0.7,
        "input_cfg": [manifest(folder, "a", weight=0.5), manifest(folder, "b", weight=0.5)],
    }
    train_ds = {"input_cfg": [group, manifest(folder, "c", weight=0.3)], "batch_size": 4}
    # 120 utterances: 0.7 * 0.5, 0.7 * 0.5 and 0.3 of them
    assert counts(steps_of(train_ds, ranks)) == {"a": 42, "b": 42, "c": 36}


@RANKS
def test_without_weights_an_epoch_has_every_utterance_once(folder, ranks):
    train_ds = {"input_cfg": [manifest(folder, name) for name in "abc"], "batch_size": 7}
    steps = steps_of(train_ds, ranks)
    assert counts(steps) == {"a": 40, "b": 40, "c": 40}
    assert len({key for step in steps for batch in step for key in batch}) == 120


@RANKS
def test_bounds_of_a_duration_leave_out_what_is_outside(folder, ranks):
    train_ds = {
        "input_cfg": [manifest(folder, name) for name in "abc"],
        "batch_size": 4,
        "min_duration": 0.6,
        "max_duration": 1.61,
    }
    # c: 0.60, 0.65 … 1.60 are 21; all of a are too short
    assert counts(steps_of(train_ds, ranks)) == {"b": 40, "c": 21}


@RANKS
def test_bounds_of_one_of_several_loaders_are_its_own(folder, ranks):
    train_ds = {
        "multi_config": True,
        "sampler_fusion": "round_robin",
        "short": {**manifest(folder, "c"), "batch_size": 4, "max_duration": 0.76},
        "long": {**manifest(folder, "b"), "batch_size": 4},
    }
    for name in ("short", "long"):
        train_ds[name].pop("type")
    # c: 0.25, 0.30 … 0.75 are 11; all of b are longer than the bound of the other loader
    steps = steps_of(train_ds, ranks, epochs=3)
    keys = {key for step in steps for batch in step for key in batch}
    assert Counter(map(source, keys)) == {"b": 40, "c": 11}


@RANKS
def test_round_robin_takes_the_loaders_in_turns_and_zip_takes_all_in_a_step(folder, ranks):
    loaders = {
        name: {"manifest_filepath": str(folder / f"{name}.json"), "batch_size": 2}
        for name in ("a", "b")
    }
    turns = steps_of({"multi_config": True, "sampler_fusion": "round_robin", **loaders}, ranks)
    # 20 batches of each loader; what has no batch for every rank comes last
    whole = 20 // ranks
    sources = [{source(key) for batch in step for key in batch} for step in turns]
    assert all(len(found) == 1 for found in sources[: 2 * whole])
    assert all(one != other for one, other in pairwise(sources[: 2 * whole]))

    together = steps_of({"multi_config": True, "sampler_fusion": "zip", **loaders}, ranks)
    assert all(counts([step]) == {"a": 2 * ranks, "b": 2 * ranks} for step in together[:whole])
    assert counts(together) == {"a": 40, "b": 40}


@RANKS
def test_randomized_round_robin_draws_loaders_by_their_weights(folder, ranks):
    train_ds = {
        "multi_config": True,
        "sampler_fusion": "randomized_round_robin",
        "sampler_weights": {"a": 3, "b": 1},
        **{
            name: {"manifest_filepath": str(folder / f"{name}.json"), "batch_size": 2}
            for name in ("a", "b")
        },
    }
    found = counts(steps_of(train_ds, ranks, epochs=3))
    assert found["a"] == 3 * found["b"]


@RANKS
def test_batches_of_buckets_have_the_sizes_that_the_bins_state(folder, ranks):
    bins, sizes = [0.57, 1.07, 2.27], [6, 4, 2]
    train_ds = {
        "input_cfg": [manifest(folder, name) for name in "abc"],
        "bucket_duration_bins": bins,
        "bucket_batch_size": sizes,
    }
    steps = steps_of(train_ds, ranks)
    batches = [batch for step in steps for batch in step]
    for batch in batches:  # what is left of a shorter bucket may fill a batch of a longer one
        longest = max(map(seconds, batch))
        assert len(batch) <= next(
            size for end, size in zip(bins, sizes, strict=True) if longest <= end
        )

    # a and 7 of c (0.25 ... 0.55); b and 10 of c (0.60 ... 1.05); 23 of c: 47 / 6, 50 / 4, 23 / 2
    assert counts(steps) == {"a": 40, "b": 40, "c": 40}
    assert len(batches) < 8 + 13 + 12 + ranks  # the last step may split batches


@RANKS
def test_a_batch_duration_bounds_the_padded_seconds(folder, ranks):
    train_ds = {"input_cfg": [manifest(folder, name) for name in "abc"], "batch_duration": 4}
    steps = steps_of(train_ds, ranks)
    for batch in (batch for step in steps for batch in step):
        assert len(batch) * max(seconds(key) for key in batch) <= 4.0001
    assert counts(steps) == {"a": 40, "b": 40, "c": 40}


@RANKS
@pytest.mark.parametrize("shuffle", [False, True])
def test_only_with_shuffle_has_every_epoch_an_order_of_its_own(folder, ranks, shuffle):
    for names in ("c", "abc"):
        train_ds = {
            "manifest_filepath": [str(folder / f"{name}.json") for name in names],
            "batch_size": 4,
            "shuffle": shuffle,
        }
        steps = steps_of(train_ds, ranks, epochs=2)
        first, second = steps[: len(steps) // 2], steps[len(steps) // 2 :]
        assert (first == second) is not shuffle


@pytest.mark.parametrize("is_listed", [True, False])
def test_validation_reads_every_utterance_of_sources_with_weights(folder, is_listed):
    weights = {"a": 0.9, "b": 0.1}
    names = [[str(folder / f"{name}.json"), weight] for name, weight in weights.items()]
    group = {
        "type": "group",
        "weight": 1.0,
        "input_cfg": [manifest(folder, name, weight=weight) for name, weight in weights.items()],
    }
    section = {"manifest_filepath": names} if is_listed else {"input_cfg": [group]}
    conf = {"fbank_conf": {"num_mel_bins": 10}}
    config = parse_config({"validation_ds": section, "dataset_conf": conf}, "train.yaml")
    loader = build_loader(
        config.cv_data, "raw", config, None, training=False, options=LoaderOptions()
    )
    read = Counter(key.rpartition("/")[2] for batch in loader for key in batch.keys)
    assert read == {f"{name}{number:02d}": 1 for name in weights for number in range(40)}


TOKENS = {"use_multimodal_sampling": True, "token_equivalent_duration": 0.05}


def tokens(key, *, total):
    """Tokens of an utterance of 0.05 s a token; the text `x y` has 3 characters."""
    return math.ceil(round(seconds(key) / 0.05, 6)) + (3 if total else 0)


@RANKS
@pytest.mark.parametrize("total", [True, False])
def test_batches_of_audio_are_bounded_by_their_padded_tokens(folder, ranks, total):
    train_ds = {
        "input_cfg": [manifest(folder, name) for name in "abc"],
        **TOKENS,
        "batch_tokens": 120,
        "measure_total_length": total,
    }
    steps = steps_of(train_ds, ranks, characters=True)
    batches = [batch for step in steps for batch in step]
    padded = [len(batch) * max(tokens(key, total=total) for key in batch) for batch in batches]
    assert max(padded) <= 120
    assert counts(steps) == {"a": 40, "b": 40, "c": 40}
    assert len({key for batch in batches for key in batch}) == 120
    # Batches are filled: three quarters of the bound on average, but for split last steps
    assert len(batches) < sum(padded) / 90 + ranks

    capped = steps_of({**train_ds, "batch_size": 3}, ranks, characters=True)
    assert max(len(batch) for step in capped for batch in step) == 3


@RANKS
@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("batches", [{"batch_tokens": 300}, {"batch_size": 4}])
def test_audio_out_of_the_bounds_on_tokens_is_left_out(folder, ranks, batches, total):
    train_ds = {
        "input_cfg": [manifest(folder, name) for name in "abc"],
        **TOKENS,
        **batches,
        "min_tokens": 16,
        "max_tokens": 25,
        "measure_total_length": total,
    }
    keys = {
        key
        for step in steps_of(train_ds, ranks, characters=True)
        for batch in step
        for key in batch
    }
    names = [f"{name}{number:02d}" for name in "abc" for number in range(40)]
    assert keys == {name for name in names if 16 <= tokens(name, total=total) <= 25}


@RANKS
def test_audio_and_text_of_one_loader_share_the_bound_on_tokens(folder, ranks):
    (folder / "t.txt").write_text("".join("xyz" * (1 + n % 9) + "\n" for n in range(60)))
    train_ds = {
        "input_cfg": [manifest(folder, "c"), {"type": "txt", "paths": str(folder / "t.txt")}],
        **TOKENS,
        "batch_tokens": 90,
        "max_tokens": 40,
    }
    steps = steps_of(train_ds, ranks, characters=True)
    batches = [batch for step in steps for batch in step]
    lengths = [[length_of(key) for key in batch] for batch in batches]
    assert max(len(batch) * max(batch) for batch in lengths) <= 90
    assert all(len({":" in key for key in batch}) == 1 for batch in batches)
    of_text = [key for batch in batches for key in batch if ":" in key]
    of_audio = {key for batch in batches for key in batch if ":" not in key}
    assert len(of_text) == len(set(of_text)) == 60
    assert of_audio == {f"c{n:02d}" for n in range(40) if tokens(f"c{n:02d}", total=True) <= 40}


@pytest.mark.third
@RANKS
@pytest.mark.parametrize(
    ("total", "sizes"), [(True, {14: 512, 25: 192, 36: 128}), (False, {10: 128, 15: 192})]
)
def test_batches_of_text_have_the_sizes_of_their_buckets(folder, ranks, total, sizes):
    """The bins and sizes of the document; a pair has n and 2 n tokens."""
    words = [n % 14 + 1 for n in range(3000)]
    (folder / "en.txt").write_text("".join("x" * n + "\n" for n in words))
    (folder / "pl.txt").write_text("".join("y" * 2 * n + "\n" for n in words))
    pair = {"source_path": str(folder / "en.txt"), "target_path": str(folder / "pl.txt")}
    train_ds = {
        "input_cfg": [{"type": "txt_pair", **pair}],
        "use_multimodal_sampling": True,
        "measure_total_length": total,
        "bucket_duration_bins": [[10, 4], [10, 26], [15, 10]],
        "bucket_batch_size": [512, 128, 192],
    }
    steps = steps_of(train_ds, ranks, characters=True)
    lengths = {number: (3 if total else 1) * n for number, n in enumerate(words, 1)}
    batches = [
        [lengths[int(key.rpartition(":")[2])] for key in batch] for step in steps for batch in step
    ]
    for batch in batches:
        (size,) = {next(sizes[end] for end in sizes if length <= end) for length in batch}
        assert len(batch) <= size

    kept = [length for length in lengths.values() if length <= max(sizes)]
    assert sorted(length for batch in batches for length in batch) == sorted(kept)
    assert max(map(len, batches)) > 0.7 * max(sizes.values())


def length_of(key):
    """Tokens of an utterance or of line `t.txt:n`."""
    if ":" not in key:
        return tokens(key, total=True)
    return 3 * (1 + (int(key.rpartition(":")[2]) - 1) % 9)
