"""Hostile and damaged tars end with a finding that names the tar and what is lost; the other tars
are indexed.
"""

import tracemalloc

import pytest

from tests.support.data.checking import check
from tests.support.data.hostile_tars import END, TAR, TARS, sample
from tests.support.data.tars import everything
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.formats.tar_members import read_members
from wenet_uio.dataset.types import SampleRef


@pytest.fixture(scope="module")
def hostile_list(tmp_path_factory):
    """A list of all hostile tars, with a sound one at its start and its end."""
    folder = tmp_path_factory.mktemp("tars")
    contents = {
        "sound_0": sample("whole0") + END,
        **{name: each.content() for name, each in TARS.items()},
    }
    contents["sound_1"] = sample("whole1") + END
    for name, content in contents.items():
        (folder / f"{name}.tar").write_bytes(content)
    (folder / "data.list").write_text("".join(f"{folder}/{name}.tar\n" for name in contents))
    build_index(str(folder / "data.list"), "shard")
    return folder / "data.list"


@pytest.fixture(scope="module")
def corpus(hostile_list):
    return open_list(str(hostile_list), "shard")


def named_in(name, problems):
    """The problems of one tar; the tar itself has the key TAR."""
    own = [(TAR if key.endswith(f"/{name}.tar") else key, reason) for key, reason in problems]
    return [
        (key, reason) for key, reason in own if key == TAR or reason.endswith(f"(in {name}.tar)")
    ]


def test_at_least_fifty_tars_are_tried():
    assert len(TARS) >= 50


@pytest.mark.parametrize("name", TARS)
def test_a_hostile_tar_keeps_its_sound_samples_and_the_lost_ones_are_named(corpus, name):
    hostile, keys = TARS[name], []
    for shard in range(corpus.num_shards):
        if corpus.files(shard).tar.endswith(f"/{name}.tar"):
            keys = [corpus.key(SampleRef(shard, row)) for row in range(corpus.samples[shard])]
    assert keys == list(hostile.kept)
    problems = named_in(name, corpus.bad)
    assert set(hostile.named) <= {key for key, _ in problems}
    assert {key for key, _ in problems}.isdisjoint(hostile.kept)
    assert any(hostile.says in reason for _, reason in problems) or not hostile.named


@pytest.mark.third
@pytest.mark.parametrize("name", TARS)
def test_memory_for_a_hostile_tar_stays_in_proportion_to_it(hostile_list, name):
    path = hostile_list.parent / f"{name}.tar"
    tracemalloc.start()
    read_members(str(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6 + 2 * path.stat().st_size


def test_the_other_tars_are_read(corpus):
    keys = [utterance.key for utterance in everything(corpus)]
    assert (keys[0], keys[-1]) == ("whole0", "whole1")
    assert len(keys) == 2 + sum(len(hostile.kept) for hostile in TARS.values())


def test_check_data_names_every_hostile_tar_and_every_lost_sample(hostile_list):
    report = check(hostile_list, "shard", processes=1, tokenizer=None, filters=False)
    problems = [(finding.key, finding.detail) for finding in report.findings]
    for name, hostile in TARS.items():
        assert set(hostile.named) <= {key for key, _ in named_in(name, problems)}, name
    assert report.counts["unreadable"] == 0
