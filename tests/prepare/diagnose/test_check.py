"""A small corpus with one fault of every kind: the check names each fault, and nothing else."""

import base64
import json
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.bin.test_data_tools import tool
from tests.support.data.checking import TOKENIZER, UNITS, check, keys_by_kind
from tests.support.data.loading import FakeConfig
from tests.support.models.vocabularies import write_tiktoken
from wenet_uio.audio.read import read_audio
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.open import open_corpus, open_for, read_source
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_report import as_text
from wenet_uio.prepare.diagnose.check_samples import Checker, Fences, Span
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.diagnose.findings import CHARACTERS, LOSSES, SUSPECTS
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer


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
    # test_check_changes.py, …_language.py, …_ends.py, …_ctc.py, …_texts.py
    elsewhere = {
        "changed_shard",
        "unknown_language",
        "past_the_end",
        "no_ctc_path",
        *CHARACTERS,
    }
    assert {*faulty_raw_list[1], *faulty_shard_list[1], *elsewhere} == {*LOSSES, *SUSPECTS}


def test_without_audio_the_faults_of_index_and_text_are_found(faulty_raw_list):
    raw, expected = faulty_raw_list
    heard = {"unreadable", "changed_length", "silent", "clipped", "other_rate", "other_channel"}
    report = check(raw, "raw", audio=False)
    assert keys_by_kind(report) == {
        kind: keys for kind, keys in expected.items() if kind not in heard
    }


def test_without_units_the_report_has_no_units(faulty_raw_list):
    report = check(faulty_raw_list[0], "raw", tokenizer=None)
    assert (report.unseen, report.unknown, report.counts["space_to_unknown"]) == ([], {}, 0)


def test_units_of_a_vocabulary_of_whisper_need_not_occur_in_a_text(faulty_raw_list, tmp_path):
    whisper = pytest.importorskip("wenet_uio.addons.families.whisper.tokenizer")
    splitter = whisper.WhisperSplitter(write_tiktoken(tmp_path / "tiny.tiktoken", []), 99)
    report = check(faulty_raw_list[0], "raw", tokenizer=Tokenizer(splitter, splitter.symbols))
    assert (report.unseen, report.unknown) == ([], {})


def test_a_list_of_broken_shards_is_an_error(tmp_path):
    (tmp_path / "cut.tar").write_bytes(b"short")
    (tmp_path / "list").write_text(f"{tmp_path / 'cut.tar'}\n")
    with pytest.raises(ListError, match=r"no usable utterance \(.*cut.tar: damaged at byte 0"):
        check(tmp_path / "list", "shard")


def test_the_text_names_losses_and_suspects(faulty_raw_list):
    text = as_text(check(faulty_raw_list[0], "raw"))
    assert (
        "training would lose: 1 unreadable: audio that cannot be decoded\n    unreadable: " in text
    )
    assert (
        "suspect: 1 clipped: audio with more than 0.1 % of its samples at full scale\n    clipped: "
        in text
    )
    assert text.endswith("training would lose 8")


@pytest.mark.parametrize("option", ["--html", "--fix"])
def test_a_result_that_cannot_be_written_is_an_error_before_the_list_is_read(tmp_path, option):
    done = tool("check_data.py", tmp_path / "absent.list", option, tmp_path)
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path}: Is a directory\n")


def test_json_and_page_have_the_same_findings_and_the_page_needs_no_other_file(
    faulty_raw_list, tmp_path
):
    raw, expected = faulty_raw_list
    (tmp_path / "units").write_text(
        "".join(f"{unit} {number}\n" for number, unit in enumerate(UNITS))
    )
    done = tool(
        "check_data.py",
        raw,
        "--units",
        tmp_path / "units",
        "--json",
        "--html",
        tmp_path / "page.html",
    )
    assert done.returncode == 1
    report = json.loads(done.stdout.splitlines()[-1])
    assert +Counter(report["counts"]) == {kind: len(keys) for kind, keys in expected.items()}
    page = (tmp_path / "page.html").read_text()
    assert all(f">{key}<" in page for keys in expected.values() for key in keys)
    assert not re.search(r"<script src|https?://", page)
    assert page.count('<figure class="chart">') == 3
    sounds = re.findall(r'src="data:audio/[a-z]+;base64,([^"]+)"', page)
    played = [read_audio(base64.b64decode(sound)) for sound in sounds]
    mute = ("not_indexed", "unreadable", "changed_length")
    assert len(played) == sum(len(keys) for kind, keys in expected.items() if kind not in mute)
    assert {rate for _, rate in played} == {8000, 16000}


def test_a_checker_can_be_pickled_and_gives_the_same_parts(faulty_shard_list):
    with opened_for_check(str(faulty_shard_list[0]), "shard") as (corpus, _):
        fences = Fences(0.0, 100.0)
        checker = Checker(
            corpus, DatasetConf(), TOKENIZER, None, corpus, True, None, fences, fences
        )
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
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        [
            f"error: {tmp_path}/no.list: no such data list; make_raw_list.py and "
            "make_shard_list.py make them"
        ],
    )


def test_a_mixture_is_checked_including_text_without_audio(faulty_raw_list, tmp_path):
    raw, expected = faulty_raw_list
    (tmp_path / "words").write_text("ab\na你\n" * 20)
    sources = [
        {"type": "raw", "data_list": str(raw)},
        {"type": "txt", "paths": str(tmp_path / "words")},
    ]
    (tmp_path / "mix.yaml").write_text(json.dumps({"sources": sources}))
    found = keys_by_kind(check(tmp_path / "mix.yaml", "raw", filters=False))
    assert len(found.pop("unknown_unit")) == 1 + 20
    assert found == {kind: keys for kind, keys in expected.items() if kind != "unknown_unit"}


def test_the_check_of_a_mixture_filters_what_its_plan_filters(tmp_path):
    """The tokens of a conversation are those of its audio, too."""
    turns = [
        {"from": "user", "value": "ab", "type": "text"},
        {"from": "assistant", "value": "a.wav", "type": "audio", "duration": 4.0},
    ]
    conversations = [
        {"id": "short", "conversations": turns[:1]},
        {"id": "long", "conversations": turns},
    ]
    talks = tmp_path / "talks.jsonl"
    talks.write_text("".join(json.dumps(line) + "\n" for line in conversations))
    source = {"type": "multimodal_conversation", "manifest_filepath": str(talks)}
    mixture = str(tmp_path / "mix.yaml")
    Path(mixture).write_text(json.dumps([source | {"audio_locator_tag": "[audio]"}]))
    batches = {"batch_type": "dynamic", "batch_tokens": 80}
    conf = DatasetConf(batch_conf=batches, filter_conf={"token_max_length": 10})
    # Characters are not tokens here, so tokens are counted.
    tokenizer = Tokenizer(CharSplitter(non_lang_syms=("[laughter]",)), TOKENIZER.symbols)

    planned, measure = open_for(
        FakeConfig(**conf.model_dump()),
        read_source(mixture, "raw"),
        training=True,
        tokenizer=tokenizer,
    )
    filtered_by_plan = measure.filtered(planned)
    assert filtered_by_plan == {"token_max_length": 1}

    reading = Reading(conf, tokenizer, filters=True)
    report = check_corpus(open_corpus(mixture, "raw"), [], reading, audio=False)
    assert report.filtered == filtered_by_plan
