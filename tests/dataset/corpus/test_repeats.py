"""What a list has more than once is told with names and counts: when the list is indexed, by
index_data.py and plan_report.py, and when a loader begins; the check names every key.
"""

import json
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.support import preloaded
from tests.support.data.checking import check
from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.base.messages import said_once
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.corpus import repeats
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.corpus.repeats import KeyHashes, repeats_in_shards
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.options import LoaderOptions

TOOLS = Path(__file__).parents[3] / "tools"
NOTHING: tuple[str, ...] = ()


class Conf:
    dataset_conf = DatasetConf()


@pytest.fixture(autouse=True)
def nothing_said():
    said_once.clear()


@pytest.fixture
def audio(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.wav").write_bytes(wav(0.2 + number / 100, seed=number))
    return tmp_path


def tar_of(folder, name, keys, first=0):
    """A tar with other audio for each key."""
    members = [
        member
        for number, key in enumerate(keys)
        for member in (
            (f"{key}.txt", f"text {number}"),
            (f"{key}.wav", (folder / f"{(first + number) % 6}.wav").read_bytes()),
        )
    ]
    return write_tar(folder / name, members)


def listed(folder, lines):
    path = folder / "data.list"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def warnings_of(path, data_type="shard"):
    """The sentences of a list, without the list at their beginning."""
    sentences = open_list(path, data_type).warnings
    assert all(sentence.startswith(f"{path}: ") for sentence in sentences)
    return [sentence.removeprefix(f"{path}: ") for sentence in sentences]


def raw_lines(folder, keys):
    return [
        json.dumps({"key": key, "wav": str(folder / f"{number % 6}.wav"), "txt": "a"})
        for number, key in enumerate(keys)
    ]


def test_a_list_without_repeats_says_nothing_and_its_index_has_no_more(audio, caplog):
    tars = [tar_of(audio, "x.tar", ("a", "b")), tar_of(audio, "y.tar", ("c", "d"))]
    path = listed(audio, tars)
    assert warnings_of(path) == []
    assert "warnings" not in build_index(path, "shard").meta
    raw = listed(audio, raw_lines(audio, "abcd"))
    assert warnings_of(raw, "raw") == []
    assert not caplog.records


@pytest.mark.parametrize("spelled", ["{x}", "file://{x}", "{folder}/./x.tar"])
def test_a_shard_that_is_named_twice_is_told(audio, spelled, caplog):
    x, y = tar_of(audio, "x.tar", ("a", "b")), tar_of(audio, "y.tar", ("c", "d"))
    again = spelled.format(x=x, folder=audio)
    path = listed(audio, [x, y, again])
    (sentence,) = warnings_of(path)
    as_first = f"{x} again" if again == x else f"{again} as {x}"
    assert sentence.startswith(
        f"1 of 3 shards has the samples of an earlier shard ({as_first}); all are read."
    )
    assert "`repeat`" in sentence
    assert [record.getMessage() for record in caplog.records] == [f"{path}: {sentence}"]
    assert open_list(path, "shard").num_samples == 6


def test_a_copy_of_a_shard_and_a_glob_over_it_are_told(audio):
    x = tar_of(audio, "x.tar", ("a", "b"))
    for number in range(5):
        shutil.copy(x, audio / f"copy{number}.tar")
    (sentence,) = warnings_of(listed(audio, [f"{audio}/*.tar"]))
    copies = ", ".join(f"{audio}/copy{number}.tar as {audio}/copy0.tar" for number in (1, 2, 3))
    assert sentence.startswith(
        f"5 of 6 shards have the samples of an earlier shard ({copies} and 2 more)"
    )


def test_equal_keys_in_two_shards_are_told_with_key_and_shards(audio):
    x, y = tar_of(audio, "x.tar", ("a", "b", "c")), tar_of(audio, "y.tar", ("b", "d", "c"), first=3)
    (sentence,) = warnings_of(listed(audio, [x, y]))
    assert sentence.startswith(
        f"2 utterances have the key of an earlier one (b in {x} and {y}, c in {x} and {y}); all are "
        "read, but results hold one utterance of a key."
    )


def test_keys_that_become_equal_as_one_word_are_told(audio):
    keys = ("a b", "a\tb", "c")
    tar = tar_of(audio, "x.tar", keys)
    (of_shards,) = warnings_of(listed(audio, [tar]))
    assert f"1 utterance has the key of an earlier one (a_b in {tar} and again)" in of_shards
    (of_lines,) = warnings_of(listed(audio, raw_lines(audio, keys)), "raw")
    assert of_lines.startswith("1 utterance has the key of an earlier one (a_b); all are read")
    assert "Blanks in keys count as `_`" in of_lines


def test_a_repeated_shard_hides_no_equal_keys_of_other_shards(audio):
    x, y = tar_of(audio, "x.tar", ("a", "b")), tar_of(audio, "y.tar", ("b",), first=4)
    of_shard, of_key = warnings_of(listed(audio, [x, x, y]))
    assert of_shard.startswith("1 of 3 shards")
    assert of_key.startswith(f"1 utterance has the key of an earlier one (b in {x} and {y})")


def test_lines_of_a_raw_list_that_state_one_key_are_told(audio):
    path = listed(audio, raw_lines(audio, "abcabcdaaaa"))
    (sentence,) = warnings_of(path, "raw")
    assert sentence.startswith("7 utterances have the key of an earlier one (a, b, c and 4 more)")


def test_lines_without_a_key_have_keys_of_their_own_and_nothing_is_told(audio):
    line = json.dumps({"wav": str(audio / "1.wav"), "txt": "a"})
    assert warnings_of(listed(audio, [line] * 3), "raw") == []


def test_the_same_list_in_two_sources_of_a_mixture_is_a_purpose(audio):
    path = listed(audio, [tar_of(audio, "x.tar", ("a", "b"))])
    source = {"type": "shard", "data_list": path}
    assert open_corpus(MixtureConf(sources=[source, source]), "raw").warnings == NOTHING
    assert open_corpus(MixtureConf(sources=[{**source, "repeat": 3}]), "raw").warnings == NOTHING


def test_a_mixture_tells_the_repeats_within_its_lists_once(audio):
    path = listed(audio, [tar_of(audio, "x.tar", ("a", "b"))] * 2)
    source = {"type": "shard", "data_list": path}
    mixture = open_corpus(MixtureConf(sources=[source, source]), "raw")
    assert mixture.warnings == open_list(path, "shard").warnings
    assert len(mixture.warnings) == 1


def test_repeated_shards_are_read_as_often_as_they_are_named(audio):
    x = tar_of(audio, "x.tar", ("a", "b"))
    corpus = open_list(listed(audio, [x, x]), "shard")
    assert [each.key for each in everything(corpus)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("training", [True, False])
def test_the_first_rank_tells_repeats_when_a_loader_begins_with_an_index_that_is_there(
    audio, training, caplog
):
    path = listed(audio, [tar_of(audio, "x.tar", ("a", "b"))] * 2)
    build_index(path, "shard")
    for rank, count in ((1, 0), (0, 1)):
        said_once.clear()
        caplog.clear()
        for _ in range(2):
            options = LoaderOptions(rank=rank, world_size=2)
            build_loader(path, "shard", Conf(), None, training=training, options=options)
        messages = [record.getMessage() for record in caplog.records]
        assert messages == list(open_list(path, "shard").warnings)[:count]


@pytest.mark.parametrize("data_type", ["shard", "raw"])
def test_tools_tell_repeats_whether_they_make_the_index_or_not(audio, data_type):
    x = tar_of(audio, "x.tar", ("a", "b"))
    lines = [x, x] if data_type == "shard" else raw_lines(audio, "aab")
    path = listed(audio, lines)
    (audio / "train.yaml").write_text("dataset_conf: {}\n")
    options = ("--data_type", data_type)
    plan = ("--data_list", path, *options, "--config", audio / "train.yaml")
    for tool, arguments in (
        ("index_data.py", (path, *options)),
        ("index_data.py", (path, *options)),
        ("plan_report.py", plan),
    ):
        done = preloaded.run([TOOLS / tool, *arguments], env=preloaded.on_path())
        assert done.returncode == 0, done.stderr
        (sentence,) = open_list(path, data_type).warnings
        assert done.stderr.count(sentence) == 1, done.stderr


def test_a_check_names_every_repeated_key(audio):
    x = tar_of(audio, "x.tar", ("a", "b"))
    report = check(listed(audio, [x, x]), "shard", processes=1, tokenizer=None, filters=False)
    assert report.counts["duplicate_key"] == 2


def hashes_of(values, per_shard):
    hashes = KeyHashes()
    for first in range(0, len(values), per_shard):
        hashes.add(values[first : first + per_shard])
    return hashes


@pytest.mark.parametrize("per_shard", [7, 100, 5000])
def test_of_many_keys_a_part_is_compared_that_holds_all_or_none_of_equal_ones(
    monkeypatch, per_shard
):
    monkeypatch.setattr(repeats, "MOST_KEYS", 256)
    values = np.random.default_rng(1).integers(0, 2**64, 2500, np.uint64)
    values = np.concatenate([values, values])
    hashes = hashes_of(values, per_shard)
    count, _ = hashes.repeated(np.empty(0, np.uint32))
    assert hashes.part >= 32
    assert abs(count * hashes.part - 2500) < 1000
    digests = np.arange(-(-5000 // per_shard))
    shards = [f"{number}.tar" for number in digests]
    (sentence,) = repeats_in_shards(shards, digests, hashes, lambda place: "k")
    assert sentence.startswith(f"about {count * hashes.part} utterances have the key")


def test_repeated_keys_are_found_in_the_order_of_the_list(monkeypatch):
    values = np.asarray([9, 4, 4, 9, 7, 4], np.uint64)
    count, places = hashes_of(values, 2).repeated(np.empty(0, np.uint32))
    assert count == 3
    assert places == [((0, 1), (1, 0)), ((0, 0), (1, 1)), ((0, 1), (2, 1))]
    assert hashes_of(values, 2).repeated(np.asarray([1])) == (1, [((0, 1), (2, 1))])


def test_memory_does_not_grow_with_the_number_of_keys():
    values = np.random.default_rng(1).integers(0, 2**64, 1 << 16, np.uint64)
    tracemalloc.start()
    hashes = KeyHashes()
    for number in range(64):  # 4 million keys
        hashes.add(values + np.uint64(number * 977))
    hashes.repeated(np.empty(0, np.uint32))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64e6
