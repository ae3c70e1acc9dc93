import gzip
import json
from pathlib import Path

import pytest

from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import Layout


class Set:
    """A tarred data set with the layout of NeMo's converter: flat names, numbered tars and
    manifests.
    """

    def __init__(self, folder: Path, shards: list[list[tuple[dict, bytes | None]]]) -> None:
        self.folder, entries = folder, []
        (folder / "sharded_manifests").mkdir(parents=True)
        for number, shard in enumerate(shards):
            write_tar(
                folder / f"audio_{number}.tar",
                [(e["audio_filepath"], data) for e, data in shard if data],
            )
            own = [{"text": "", **entry, "shard_id": number} for entry, _ in shard]
            self.write(f"sharded_manifests/manifest_{number}.json", own)
            entries += own
        self.write("tarred_audio_manifest.json", entries)
        self.last = len(shards) - 1

    def write(self, name: str, entries: list[dict]) -> None:
        (self.folder / name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def open(
        self, tars="audio__OP_0..{last}_CL_.tar", manifests="tarred_audio_manifest.json", **layout
    ):
        line = f"{self.folder}/{tars}\t{self.folder}/{manifests}\n".replace(
            "{last}", str(self.last)
        )
        (self.folder / "nemo.list").write_text(line)
        return open_list(str(self.folder / "nemo.list"), "shard", Layout(**layout))


SHARDED = "sharded_manifests/manifest__OP_0..{last}_CL_.json"


def entry(name, text="a", **fields):
    return {"audio_filepath": name, "text": text, **fields}


@pytest.fixture
def whole(tmp_path):
    return Set(
        tmp_path / "set",
        [
            [
                (entry("a_x.wav", "one", duration=0.5, lang="en"), wav(0.5)),
                (entry("b.wav", "two"), wav(0.6, seed=1)),
            ],
            [(entry("c.wav", "three", duration=0.7), wav(0.7, seed=2))],
        ],
    )


@pytest.mark.parametrize("manifests", ["tarred_audio_manifest.json", SHARDED])
def test_one_manifest_for_all_tars_and_one_for_each_give_the_same_samples(whole, manifests):
    corpus = whole.open(manifests=manifests)
    assert corpus.samples.tolist() == [2, 1]
    assert [(u.key, u.text, u.end) for u in everything(corpus)] == [
        ("a_x", "one", None),
        ("b", "two", None),
        ("c", "three", None),
    ]
    assert bytes(everything(corpus)[2].audio) == wav(0.7, seed=2)
    assert everything(corpus)[0].extra == {"duration": 0.5, "lang": "en", "shard_id": 0}
    assert corpus.bad == []
    assert corpus.digest == whole.open(manifests=SHARDED).digest


def test_manifests_may_be_compressed(whole):
    manifest = whole.folder / "tarred_audio_manifest.json"
    (whole.folder / "all.json.gz").write_bytes(gzip.compress(manifest.read_bytes()))
    assert whole.open(manifests="all.json.gz").num_samples == 3
    (whole.folder / "half.json.gz").write_bytes(gzip.compress(manifest.read_bytes())[:-20])
    with pytest.raises(ListError, match="half.json.gz: cut short or damaged"):
        whole.open(manifests="half.json.gz")


def test_segments_of_one_member_are_found_by_their_offset(tmp_path):
    audio = wav(2.0)
    data = Set(
        tmp_path / "set",
        [
            [
                (entry("long.wav", "one", offset=0.0, duration=0.5), audio),
                (entry("long-sub1.wav", "two", offset=0.5, duration=1.0), None),
                (entry("long-sub2.wav", "three", offset=1.5, duration=0.5), None),
                (entry("other.wav", "four", offset=0.0, duration=0.4), wav(0.5)),
            ]
        ],
    )
    corpus = data.open()
    assert [(u.key, u.start, u.end) for u in everything(corpus)] == [
        ("long", 0.0, 0.5),
        ("long_0.5", 0.5, 1.5),
        ("long_1.5", 1.5, 2.0),
        ("other", 0.0, None),  # differs by less than NeMo's tolerance from the whole member
    ]
    assert corpus.rows(0).num_samples.tolist() == [4000, 8000, 4000, 4000]
    samples, _ = read_audio(audio)
    utterance = everything(corpus)[1]
    assert (
        read_audio(utterance.audio, utterance.start, utterance.end)[0].tolist()
        == samples[4000:12000].tolist()
    )


def test_differences_between_a_tar_and_its_manifest_are_reported_entry_by_entry(tmp_path):
    data = Set(
        tmp_path / "set",
        [
            [
                (entry("a.wav"), wav()),
                (entry("gone.wav"), None),
                (entry("skipped.wav", _skipme=True), wav()),
                (entry("late.wav", offset=3.0, duration=1.0), wav()),
                (entry("noise.wav"), b"noise"),
            ]
        ],
    )
    write_tar(
        data.folder / "audio_0.tar",
        [(f"{n}.wav", wav()) for n in ("a", "skipped", "late", "extra")],
    )
    with open(data.folder / "tarred_audio_manifest.json", "a") as file:
        file.write("{broken\n")
        file.write(json.dumps(entry("x.wav", shard_id=5)) + "\n")
    manifest = f"{data.folder}/tarred_audio_manifest.json"
    corpus = data.open()
    assert [u.key for u in everything(corpus)] == ["a"]
    assert sorted(corpus.bad) == sorted(
        [
            ("gone", "gone.wav is not in the tar"),
            ("noise", "noise.wav is not in the tar"),
            ("skipped", "left out: _skipme is set"),
            ("late_3", "no audio between 3.0 s and 4.0 s"),
            ("extra.wav", f"no entry of {manifest} names it"),
            (
                f"{manifest}:6",
                "not JSON (Expecting property name enclosed in double quotes: line 1 column 2 "
                "(char 1))",
            ),
            ("x", "x.wav is not in the tar"),
        ]
    )


def test_entries_of_a_shard_that_is_not_in_the_list_are_reported(whole):
    with open(whole.folder / "tarred_audio_manifest.json", "a") as file:
        file.write(
            json.dumps(entry("x.wav", shard_id=5)) + "\n" + json.dumps(entry("y.wav")) + "\n"
        )
    manifest = f"{whole.folder}/tarred_audio_manifest.json"
    assert whole.open().bad == [
        (manifest, "1 entries of shard 5, whose tar is not in the list"),
        (f"{manifest}:5", "no shard_id, so that the tar with its audio is unknown"),
    ]


def test_the_text_may_have_another_name(tmp_path):
    data = Set(tmp_path / "set", [[(entry("a.wav", "x", answer="y"), wav())]])
    assert [u.text for u in everything(data.open(text_field="answer"))] == ["y"]
    assert [u.text for u in everything(data.open())] == ["x"]


def test_a_changed_manifest_is_read_again(whole):
    assert whole.open().num_samples == 3
    whole.write("tarred_audio_manifest.json", [entry("c.wav", "four", shard_id=1)])
    (whole.folder / "nemo.list.idx").unlink()
    assert [(u.key, u.text) for u in everything(whole.open())] == [("c", "four")]


def test_the_numbers_of_tars_and_manifests_must_fit(whole):
    with pytest.raises(ListError, match="nemo.list:1: 2 tars and 3 manifests"):
        whole.open(manifests="sharded_manifests/manifest_{0..2}.json")
    with pytest.raises(ListError, match="not found, the first is .*manifest_9.json"):
        whole.open(tars="audio_0.tar", manifests="sharded_manifests/manifest_9.json")
