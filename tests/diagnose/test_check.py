"""A small corpus with one fault of every kind: the check names each fault, and nothing else."""

import base64
import io
import json
import os
import pickle
import re
import tarfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.tools.test_data_tools import tool
from wenet_uio.audio.read import read_audio
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.formats.data_list import ListError, RawLine, parse_raw_line
from wenet_uio.diagnose.check import Reading, check_corpus
from wenet_uio.diagnose.check_fix import write_clean_list
from wenet_uio.diagnose.check_report import as_text
from wenet_uio.diagnose.check_samples import Checker, Fences, Span
from wenet_uio.diagnose.check_shards import opened_for_check
from wenet_uio.diagnose.findings import LOSSES, SUSPECTS
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.shard_job import Storing, encode_sample
from wenet_uio.prepare.shard_writer import write_shard
from wenet_uio.prepare.sharding import ShardOptions
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.tokenizer import Tokenizer

UNITS = ["<blank>", "<unk>", "<sos/eos>", "a", "b", "c", "z"]
TOKENIZER = Tokenizer(CharSplitter(), {unit: number for number, unit in enumerate(UNITS)})


def write(path, samples, rate=16000, kind=None):
    soundfile.write(path, samples, rate, subtype="PCM_16", format=kind)
    return str(path)


@pytest.fixture
def planted(make_utterances, tmp_path):
    """(lines of 40 good utterances and of the faulty utterances that can be packed, keys by kind of fault)."""
    lines = make_utterances(40)
    noise = np.random.default_rng(0).normal(0, 0.1, 8000)
    flac = tmp_path / "cut.flac"
    soundfile.write(flac, noise, 16000)
    flac.write_bytes(flac.read_bytes()[:6000])
    faulty = {
        "unreadable": RawLine("unreadable", str(flac), "ab"),
        "empty_text": RawLine("empty_text", write(tmp_path / "empty.wav", noise), " "),
        "silent": RawLine("silent", write(tmp_path / "silent.wav", noise * 1e-3), "ab"),
        "clipped": RawLine("clipped", write(tmp_path / "clipped.wav", (noise * 20).clip(-1, 1)), "ab"),
        "other_rate": RawLine("other_rate", write(tmp_path / "rate.wav", noise, 8000), "abc"),
        "duration": RawLine("duration", write(tmp_path / "long.wav", np.tile(noise, 120)), "abc" * 40),
        "characters_per_second": RawLine("characters_per_second", write(tmp_path / "fast.wav", noise), "abc" * 100),
        "space_to_unknown": RawLine("space_to_unknown", write(tmp_path / "space.wav", noise), "a b"),
        "unknown_unit": RawLine("unknown_unit", write(tmp_path / "unit.wav", noise), "a你"),
        "duplicate_key": RawLine(lines[3].key, write(tmp_path / "again.wav", noise), "ab"),
    }
    found = {kind: [line.key] for kind, line in faulty.items()}
    return lines + list(faulty.values()), found


def check(data_list, data_type, processes=2, tokenizer=TOKENIZER, filters=True, audio=True):
    reading = Reading(DatasetConf(), tokenizer, filters)
    with opened_for_check(str(data_list), data_type) as (corpus, not_indexed):
        return check_corpus(corpus, not_indexed, reading, audio=audio, processes=processes)


def keys_by_kind(report):
    found = defaultdict(list)
    for finding in report.findings:
        found[finding.kind].append(finding.key)
    return {kind: sorted(keys) for kind, keys in found.items()}


@pytest.fixture
def faulty_raw_list(planted, tmp_path):
    """(raw list, keys by kind of fault)."""
    lines, expected = planted
    raw = tmp_path / "raw.list"
    make_raw_list(lines, str(raw))
    (tmp_path / "garbage.wav").write_bytes(b"garbage" * 100)
    with open(raw, "a") as file:
        file.write("no JSON\n")
        file.write('{"key": "no_audio", "wav": "nowhere.wav", "txt": "a"}\n')
        file.write('{"key": "no_text", "wav": "fast.wav"}\n')
        file.write('{"key": "garbage", "wav": "garbage.wav", "txt": "a"}\n')
        file.write('{"key": "changed_length", "wav": "fast.wav", "txt": "a", "duration": 0.8}\n')
    bad = ["no_audio", "garbage", *(f"{raw}:{number}" for number in (len(lines) + 1, len(lines) + 3))]
    return raw, {**expected, "not_indexed": sorted(bad), "changed_length": ["changed_length"]}


@pytest.fixture
def faulty_shard_list(planted, tmp_path):
    """(shard list, keys by kind of fault)."""
    lines, expected = planted
    shards = tmp_path / "shards"
    make_shard_list(lines, shards, str(tmp_path / "shard.list"), ShardOptions(per_shard=20))
    names = (tmp_path / "shard.list").read_text().splitlines()
    with tarfile.open(shards / "unpaired.tar", "w") as tar:
        members = {"only_text.txt": b"a", "only_audio.wav": Path(lines[0].wav).read_bytes()}
        members |= {"unreadable.txt": b"ab", "unreadable.flac": (tmp_path / "cut.flac").read_bytes()}  # is not packed
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    write_shard(shards / "cut.tar", [encode_sample(replace(lines[0], key=key), Storing()) for key in ("cut0", "cut1")])
    os.truncate(shards / "cut.tar", os.path.getsize(shards / "cut.tar") - 3000)
    os.remove(f"{shards}/cut.tar.idx")
    (shards / "noise.tar").write_bytes(np.random.default_rng(0).bytes(20_000))
    (shards / "nothing.tar").write_bytes(b"")
    tarfile.open(shards / "hollow.tar", "w").close()
    broken = [str(shards / f"{name}.tar") for name in ("missing", "noise", "nothing")]
    whole = [str(shards / f"{name}.tar") for name in ("cut", "unpaired", "hollow")]
    (tmp_path / "shard.list").write_text("\n".join([*names, *broken, *whole]))
    found = {"not_indexed": ["cut1", "cut1.wav", "only_audio", "only_text"], "empty_shard": [whole[2]]}
    return tmp_path / "shard.list", {**expected, **found, "broken_shard": broken}


@pytest.mark.parametrize("processes", [1, 2])
def test_each_fault_of_a_raw_list_is_found_by_name(faulty_raw_list, processes):
    raw, expected = faulty_raw_list
    report = check(raw, "raw", processes)
    assert keys_by_kind(report) == expected
    assert report.losses == sum(len(keys) for kind, keys in expected.items() if kind in LOSSES)
    assert report.unknown == {"▁": 1, "你": 1}
    assert report.unseen == ["z"]
    assert report.filtered == {"token_max_length": 1, "token_min_length": 1}


def test_each_fault_of_a_shard_list_is_found_by_name(faulty_shard_list):
    shard_list, expected = faulty_shard_list
    assert keys_by_kind(check(shard_list, "shard")) == expected


def test_every_kind_of_finding_was_planted(faulty_raw_list, faulty_shard_list):
    assert {*faulty_raw_list[1], *faulty_shard_list[1]} == {*LOSSES, *SUSPECTS}


def test_without_audio_the_faults_of_index_and_text_are_found(faulty_raw_list):
    raw, expected = faulty_raw_list
    heard = {"unreadable", "changed_length", "silent", "clipped", "other_rate"}
    report = check(raw, "raw", audio=False)
    assert keys_by_kind(report) == {kind: keys for kind, keys in expected.items() if kind not in heard}


def test_without_units_the_report_has_no_units(faulty_raw_list):
    report = check(faulty_raw_list[0], "raw", tokenizer=None)
    assert (report.unseen, report.unknown, report.counts["space_to_unknown"]) == ([], {}, 0)


def test_a_list_of_broken_shards_is_an_error(tmp_path):
    (tmp_path / "cut.tar").write_bytes(b"short")
    (tmp_path / "list").write_text(f"{tmp_path / 'cut.tar'}\n")
    with pytest.raises(ListError, match=r"no usable utterance \(.*cut.tar: damaged at byte 0"):
        check(tmp_path / "list", "shard")


def test_the_text_names_losses_and_suspects(faulty_raw_list):
    text = as_text(check(faulty_raw_list[0], "raw"))
    assert "training would lose: 1 unreadable: audio that cannot be decoded\n    unreadable: " in text
    assert "suspect: 1 clipped: audio with more than 0.1 % of its samples at full scale\n    clipped: " in text
    assert text.endswith("training would lose 8")


def fix(data_list, data_type, out):
    """Check and write a clean list; returns the number of utterances that are left."""
    with opened_for_check(str(data_list), data_type) as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading())
        return write_clean_list(corpus, report, str(out), str(data_list))


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_fixed_lists_lose_nothing_and_the_ledger_names_the_losses(kind, faulty_raw_list, faulty_shard_list, tmp_path):
    data_list, expected = faulty_raw_list if kind == "raw" else faulty_shard_list
    out = tmp_path / "clean.list"
    left = fix(data_list, kind, out)
    ledger = [json.loads(line) for line in open(f"{out}.left_out.jsonl")]
    lost = {kind: keys for kind, keys in expected.items() if kind in LOSSES}
    assert sorted((line["kind"], line["key"]) for line in ledger) == sorted((k, key) for k in lost for key in lost[k])
    report = check(out, kind)
    assert report.losses == 0
    assert report.utterances == left == 40 + len(set(expected) & SUSPECTS.keys()) + (kind == "shard")  # cut0


def test_a_fixed_raw_list_keeps_its_lines_unchanged(faulty_raw_list, tmp_path):
    raw, _ = faulty_raw_list
    fix(raw, "raw", tmp_path / "clean.list")
    clean = (tmp_path / "clean.list").read_text().splitlines()
    assert set(clean) < set(raw.read_text().splitlines())
    assert len({parse_raw_line(line).key for line in clean}) == len(clean)


def test_sound_shards_are_kept_and_samples_of_other_shards_are_copied_with_all_members(make_utterances, tmp_path):
    lines = make_utterances(6)
    make_shard_list(lines, tmp_path / "shards", str(tmp_path / "list"), ShardOptions(per_shard=3))
    (tmp_path / "list.idx").unlink()
    first, second = (tmp_path / "list").read_text().splitlines()
    members = {"x.txt": b"a", "x.wav": Path(lines[0].wav).read_bytes(), "x.json": b"{}", "y.txt": b"b"}
    with tarfile.open(second, "a") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert fix(tmp_path / "list", "shard", tmp_path / "clean") == 7
    kept, copied = (tmp_path / "clean").read_text().splitlines()
    assert (kept, copied) == (first, f"{tmp_path}/clean.shards/000000001_{Path(second).name}")
    with tarfile.open(copied) as tar, tarfile.open(second) as source:
        names = [name for name in source.getnames() if name != "y.txt"]
        assert tar.getnames() == names
        assert all(tar.extractfile(name).read() == source.extractfile(name).read() for name in names)


@pytest.mark.parametrize(
    ("out", "message"), [("raw.list", "is the list itself"), ("other/out", "put the new list into the folder of")]
)
def test_a_fix_of_the_list_itself_or_into_another_folder_is_refused(out, message, make_lists, tmp_path):
    raw = Path(make_lists(3)["raw"])
    before = raw.read_bytes()
    with pytest.raises(ListError, match=message):
        fix(raw, "raw", tmp_path / out)
    assert raw.read_bytes() == before
    assert not (tmp_path / "other").exists()


def test_json_and_page_have_the_same_findings_and_the_page_needs_no_other_file(faulty_raw_list, tmp_path):
    raw, expected = faulty_raw_list
    (tmp_path / "units").write_text("".join(f"{unit} {number}\n" for number, unit in enumerate(UNITS)))
    done = tool("check_data.py", raw, "--units", tmp_path / "units", "--json", "--html", tmp_path / "page.html")
    assert done.returncode == 1
    report = json.loads(done.stdout.splitlines()[-1])
    assert +Counter(report["counts"]) == {kind: len(keys) for kind, keys in expected.items()}
    page = (tmp_path / "page.html").read_text()
    assert all(f">{key}<" in page for keys in expected.values() for key in keys)
    assert not re.search(r"<script|https?://", page)
    picture, *sounds = re.findall(r'src="data:[a-z/]+;base64,([^"]+)"', page)
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    played = [read_audio(base64.b64decode(sound)) for sound in sounds]
    mute = ("not_indexed", "unreadable", "changed_length")
    assert len(played) == sum(len(keys) for kind, keys in expected.items() if kind not in mute)
    assert {rate for _, rate in played} == {8000, 16000}


def test_a_checker_can_be_pickled_and_gives_the_same_parts(faulty_shard_list):
    with opened_for_check(str(faulty_shard_list[0]), "shard") as (corpus, _):
        fences = Fences(0.0, 100.0)
        checker = Checker(corpus, DatasetConf(), TOKENIZER, None, corpus, True, fences, fences)
        job = [Span(shard, 0, int(samples)) for shard, samples in enumerate(corpus.samples)]
        parts = [each.check(job) for each in (checker, pickle.loads(pickle.dumps(checker)))]
    assert parts[0].rows == corpus.num_samples
    assert parts[0].findings == parts[1].findings != []


def test_a_check_without_processes_is_refused(make_lists):
    with (
        opened_for_check(make_lists(2)["raw"], "raw") as (corpus, not_indexed),
        pytest.raises(ValueError, match="the number of workers must be 1 or more, found 0"),
    ):
        check_corpus(corpus, not_indexed, Reading(), processes=0)


def test_real_recordings_without_faults_exit_with_0(corpora, tmp_path):
    wavs = sorted((corpora / "fsdd/recordings").glob("*_jackson_*.wav"))[:100]
    (tmp_path / "wav.scp").write_text("".join(f"{wav.stem} {wav}\n" for wav in wavs))
    (tmp_path / "text").write_text("".join(f"{wav.stem} {wav.stem[0]}\n" for wav in wavs))
    assert tool("make_raw_list.py", "wav.scp", "text", "raw.list", cwd=tmp_path).returncode == 0
    done = tool("check_data.py", "raw.list", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "training would lose nothing")
    assert done.stdout.startswith("100 utterances, ")


def test_a_missing_list_is_an_error_of_one_line(tmp_path):
    done = tool("check_data.py", tmp_path / "no.list", "--data_type", "shard")
    assert (done.returncode, done.stderr.splitlines()) == (1, [f"error: {tmp_path}/no.list: no such data list"])


def test_a_mixture_is_checked_including_text_without_audio(faulty_raw_list, tmp_path):
    raw, expected = faulty_raw_list
    (tmp_path / "words").write_text("ab\na你\n" * 20)
    sources = [{"type": "raw", "data_list": str(raw)}, {"type": "txt", "paths": str(tmp_path / "words")}]
    (tmp_path / "mix.yaml").write_text(json.dumps({"sources": sources}))
    found = keys_by_kind(check(tmp_path / "mix.yaml", "raw", filters=False))
    assert len(found.pop("unknown_unit")) == 1 + 20
    assert found == {kind: keys for kind, keys in expected.items() if kind != "unknown_unit"}
