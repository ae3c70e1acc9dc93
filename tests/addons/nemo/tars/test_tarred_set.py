import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.data.nemo_sets import SHARDS, convert, corpus_of, entries_of, entry_of, write
from tests.support.data.tars import everything, wav
from tools import convert_to_tarred
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.readers import read_list

ROOT = Path(__file__).parents[4]
COUNT = 24


@pytest.fixture
def manifest(tmp_path):
    """A manifest of 24 recordings in two folders, with fields of its own."""
    entries = []
    for number in range(COUNT):
        path = tmp_path / f"d{number % 2}" / f"utt.{number:02d}.wav"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(wav(0.2 + number / 50, seed=number))
        entries.append(
            entry_of(
                path, f"text {number}", lang="en", speaker=f"s{number % 3}", note={"n": number}
            )
        )
    return write(tmp_path / "train.json", entries)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("metadata.yaml", "lock", "owner")
    }


def test_a_set_is_read_back_with_the_digest_of_the_raw_list(manifest, tmp_path):
    assert convert(manifest, tmp_path / "set") == 0
    raw = str(tmp_path / "raw.list")
    assert make_raw_list(read_list(str(manifest)), raw, COUNT // SHARDS) == []
    expected = open_list(raw, "raw")
    for manifests in (
        "tarred_audio_manifest.json",
        f"sharded_manifests/manifest__OP_0..{SHARDS - 1}_CL_.json",
    ):
        corpus = corpus_of(tmp_path / "set", manifests)
        assert corpus.bad == []
        assert corpus.digest == expected.digest
        assert [(u.key, u.text) for u in everything(corpus)] == [
            (u.key, u.text) for u in everything(expected)
        ]


def test_names_fields_and_files_are_those_of_nemos_converter(manifest, tmp_path):
    convert(manifest, tmp_path / "set", "--shuffle", "--shuffle_seed=3")
    folder = tmp_path / "set"
    made = {
        str(path.relative_to(folder)) for path in folder.rglob("*") if ".packed" not in path.parts
    }
    assert made - {"left_out.jsonl"} == {
        *("metadata.yaml", "tarred_audio_manifest.json", "sharded_manifests"),
        *(f"audio_{shard}.tar" for shard in range(SHARDS)),
        *(f"sharded_manifests/manifest_{shard}.json" for shard in range(SHARDS)),
    }
    given = {each["text"]: each for each in entries_of(manifest)}
    for entry in entries_of(folder / "tarred_audio_manifest.json"):
        source = given.pop(entry["text"])
        path = source["audio_filepath"].removesuffix(".wav")
        assert entry.pop("audio_filepath") == path.replace("/", "_").replace(".", "_") + ".wav"
        shard = entry.pop("shard_id")
        assert 0 <= shard < SHARDS
        assert entry.pop("key") == Path(path).name
        assert entry == {key: value for key, value in source.items() if key != "audio_filepath"}
    assert not given
    values = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert (values["version"], values["num_samples_per_shard"]) == (0, COUNT // SHARDS)
    config = values["dataset_config"]
    assert (config["num_shards"], config["shuffle"], config["shuffle_seed"]) == (SHARDS, True, 3)


def test_entries_outside_of_the_durations_are_left_out_and_none_is_lost_to_the_remainder(
    manifest, tmp_path, capsys
):
    assert (
        convert(manifest, tmp_path / "set", "--min_duration=0.3", "--max_duration=0.6", shards=4)
        == 0
    )
    kept = [each["duration"] for each in entries_of(tmp_path / "set/tarred_audio_manifest.json")]
    expected = [each["duration"] for each in entries_of(manifest) if 0.3 <= each["duration"] < 0.6]
    assert kept == expected
    assert len(kept) % 4
    assert f"{COUNT - len(kept)} entries are outside of the durations" in capsys.readouterr().err


def test_buckets_have_equal_intervals_of_duration(manifest, tmp_path):
    assert convert(manifest, tmp_path / "set", "--buckets_num=3", shards=2) == 0
    buckets = [
        entries_of(tmp_path / f"set/bucket{n}/tarred_audio_manifest.json") for n in (1, 2, 3)
    ]
    assert sum(map(len, buckets)) == COUNT
    spans = [
        (min(e["duration"] for e in bucket), max(e["duration"] for e in bucket))
        for bucket in buckets
    ]
    assert spans == sorted(spans)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))


def test_a_manifest_is_added_to_a_set_once(manifest, tmp_path, capsys):
    first, second = (
        write(tmp_path / f"{n}.json", part) for n, part in enumerate(halves(entries_of(manifest)))
    )
    convert(first, tmp_path / "set", shards=2)
    add = ["--concat_manifest_paths", str(second), f"--target_dir={tmp_path / 'set'}"]
    for _ in range(2):
        assert convert_to_tarred.main(add) == 0
    assert "is in the set already" in capsys.readouterr().err
    corpus = corpus_of(tmp_path / "set", shards=4)
    assert corpus.bad == []
    assert [u.text for u in everything(corpus)] == [each["text"] for each in entries_of(manifest)]
    values = yaml.safe_load((tmp_path / "set/metadata.yaml").read_text())
    assert (values["version"], values["is_concatenated_manifest"], len(values["history"])) == (
        1,
        True,
        1,
    )
    assert values["dataset_config"]["num_shards"] == 4


def halves(items):
    return items[: len(items) // 2], items[len(items) // 2 :]


def test_bad_entries_are_listed_and_the_others_packed(manifest, tmp_path, capsys):
    entries = entries_of(manifest)
    Path(entries[3]["audio_filepath"]).write_bytes(b"noise")
    Path(entries[5]["audio_filepath"]).unlink()
    with open(manifest, "a") as file:
        file.write("{broken\n" + json.dumps({**entries[0], "_skipme": True}) + "\n")
    assert convert(manifest, tmp_path / "set") == 1
    assert "4 entries are left out" in capsys.readouterr().err
    assert len(entries_of(tmp_path / "set/left_out.jsonl")) == 4
    assert corpus_of(tmp_path / "set").num_samples == COUNT - 2
    assert convert(manifest, tmp_path / "set", "--allow_bad") == 0


def test_a_run_with_fewer_tars_removes_those_of_the_earlier_run(manifest, tmp_path):
    convert(manifest, tmp_path / "set", shards=6)
    convert(manifest, tmp_path / "set", shards=2)
    convert(manifest, tmp_path / "other", shards=2)
    made, expected = contents(tmp_path / "set"), contents(tmp_path / "other")
    assert {name for name in made if ".packed" not in name} == {
        name for name in expected if ".packed" not in name
    }


def test_a_repeated_run_after_kills_ends_with_the_bytes_of_an_undisturbed_run(manifest, tmp_path):
    options = ("--shuffle", "--force_codec=flac")
    convert(manifest, tmp_path / "expected", *options, shards=12)
    tool = [
        sys.executable,
        str(ROOT / "tools/convert_to_tarred.py"),
        f"--manifest_path={manifest}",
        "--num_shards=12",
    ]
    packing = subprocess.Popen(
        [*tool, f"--target_dir={tmp_path / 'set'}", *options], stderr=subprocess.DEVNULL
    )
    while packing.poll() is None and not list((tmp_path / "set").glob(".packed/audio_*.json")):
        time.sleep(0.001)
    packing.kill()
    packing.communicate()
    assert convert(manifest, tmp_path / "set", *options, shards=12) == 0
    assert contents(tmp_path / "set") == contents(tmp_path / "expected")
    tar = tmp_path / "set/audio_3.tar"
    before, tar_before = tar.stat().st_mtime_ns, (tmp_path / "set/audio_4.tar").stat().st_mtime_ns
    tar.unlink()
    convert(manifest, tmp_path / "set", *options, shards=12)
    assert tar.stat().st_mtime_ns != before
    assert (tmp_path / "set/audio_4.tar").stat().st_mtime_ns == tar_before


def test_a_raw_list_without_durations_is_converted_too(manifest, tmp_path):
    lines = read_list(str(manifest))
    raw = write(
        tmp_path / "raw.list",
        [{"key": each.key, "wav": each.wav, "txt": each.text} for each in lines],
    )
    convert(raw, tmp_path / "set", "--workers=2")
    assert [
        each["duration"] for each in entries_of(tmp_path / "set/tarred_audio_manifest.json")
    ] == pytest.approx([each["duration"] for each in entries_of(manifest)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num_shards=0"], "--num_shards: the number of tars must be 1 or more, found 0"),
        (["--num_shards=99"], "24 entries of 0 to inf s for 99 tars: give --num_shards 1 to 24"),
        (
            ["--num_shards=2", "--min_duration=9"],
            "0 entries of 9 to inf s for 2 tars: give other durations",
        ),
        (
            ["--num_shards=2", "--concat_manifest_paths", "x"],
            "give --manifest_path for a new set, or",
        ),
        (["--num_shards=2", "--buckets_num=0"], "--buckets_num must be 1 or more, found 0"),
    ],
)
def test_options_that_make_no_sense_are_one_line(manifest, tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        convert_to_tarred.main(
            [f"--manifest_path={manifest}", f"--target_dir={tmp_path / 'set'}", *options]
        )
    assert "\n" not in str(caught.value)


def test_tars_of_another_tool_or_manifest_are_not_lost(manifest, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/audio_0.tar").write_bytes(b"mine")
    with pytest.raises(
        ValueError,
        match=r"audio_0.tar was made by another tool; give another --target_dir, or --over",
    ):
        convert(manifest, tmp_path / "set")
    assert convert(manifest, tmp_path / "set", "--overwrite") == 0
    other = write(tmp_path / "other.json", entries_of(manifest)[:8])
    with pytest.raises(
        ValueError, match=rf"4 tars were made from {manifest}; give another --target_dir"
    ):
        convert(other, tmp_path / "set")
    assert (
        convert_to_tarred.main(
            ["--concat_manifest_paths", str(other), f"--target_dir={tmp_path / 'set'}"]
        )
        == 0
    )
    with pytest.raises(ValueError, match="manifests were added to this set, and would be lost"):
        convert(manifest, tmp_path / "set")
    with pytest.raises(ValueError, match=r"metadata.yaml: not found; give --target_dir of a set"):
        convert_to_tarred.main(
            ["--concat_manifest_paths", str(manifest), f"--target_dir={tmp_path}"]
        )


def test_a_set_of_an_encoding_that_is_not_written_gets_no_more_tars(manifest, tmp_path):
    assert convert(manifest, tmp_path / "set", "--force_codec=flac") == 0
    metadata = tmp_path / "set/metadata.yaml"
    metadata.write_text(metadata.read_text().replace("force_codec: flac", "force_codec: mp3"))
    other = write(tmp_path / "other.json", entries_of(manifest)[:8])
    with pytest.raises(ValueError, match="force_codec .*: expected wav, flac, opus, found 'mp3'"):
        convert_to_tarred.main(
            ["--concat_manifest_paths", str(other), f"--target_dir={tmp_path / 'set'}"]
        )


def test_a_dry_run_makes_nothing(manifest, tmp_path, capsys):
    assert convert(manifest, tmp_path / "set", "--dry_run") == 0
    assert f"{COUNT} entries in {SHARDS} tars" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("options", [(), ("--slice_with_offset",), ("--force_codec=flac",)])
def test_segments_past_the_end_are_listed_and_counted(tmp_path, options, capsys):
    (tmp_path / "a.wav").write_bytes(wav(1.0))
    (tmp_path / "b.wav").write_bytes(wav(1.0, seed=1))
    entries = [
        {"audio_filepath": "a.wav", "offset": 0.5, "duration": 0.5, "text": "fits"},
        {"audio_filepath": "a.wav", "offset": 0.5, "duration": 0.55, "text": "nearly fits"},
        {"audio_filepath": "a.wav", "offset": 0.5, "duration": 1.5, "text": "ends too late"},
        {"audio_filepath": "a.wav", "duration": 3.0, "text": "whole, and too long"},
        {
            "audio_filepath": "b.wav",
            "offset": 2.0,
            "duration": 0.5,
            "text": "alone, and starts after the end",
        },
    ]
    manifest = write(tmp_path / "m.json", entries)
    assert convert(manifest, tmp_path / "set", *options, shards=1) == 1
    assert "3 entries are left out" in capsys.readouterr().err
    left = {each["key"]: each["reason"] for each in entries_of(tmp_path / "set/left_out.jsonl")}
    assert left["a_0.5-2"] == "a.wav: the segment ends at 2.00 s, the audio at 1.00 s"
    assert left["a"] == "a.wav: the segment ends at 3.00 s, the audio at 1.00 s"
    corpus = corpus_of(tmp_path / "set", shards=1)
    assert corpus.bad == []
    assert [utterance.text for utterance in everything(corpus)] == ["fits", "nearly fits"]
