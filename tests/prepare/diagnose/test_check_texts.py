"""Characters of texts that nobody sees: the check names them, and `--fix` mends them."""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bin.test_data_tools import tool
from tests.support.data.checking import check, keys_by_kind
from tests.support.data.packing import pack
from tests.support.data.parquet import write_parquet
from tests.support.data.tars import everything, write_tar
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_fix import write_clean_list
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.diagnose.findings import CHARACTERS
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.sharding import ShardOptions

TEXTS = {
    "plain": ("ab c\u00e9", "ab c\u00e9"),
    "hidden": ("a\u200bb c\u00ad", "ab c"),
    "apart": ("ce\u0301 ab", "c\u00e9 ab"),
    "twin": ("a\u0441b ab", "acb ab"),
    "all": ("\u2060e\u0301 a\u0430b", "\u00e9 aab"),
}
"""{key: (text, mended text)}."""
KINDS = {
    "invisible_character": ["all", "hidden"],
    "decomposed_letter": ["all", "apart"],
    "look_alike_letter": ["all", "twin"],
}


@pytest.fixture
def lines(make_utterances):
    (noise,) = make_utterances(1)
    return [RawLine(key, noise.wav, text) for key, (text, _) in TEXTS.items()]


def characters_in(report):
    return {kind: keys for kind, keys in keys_by_kind(report).items() if kind in CHARACTERS}


def texts_of(data_list, kind):
    return {one.key: one.text for one in everything(open_list(str(data_list), kind))}


def ledger_of(out):
    return [json.loads(line) for line in Path(f"{out}.texts.jsonl").read_text().splitlines()]


def of_tool(data_list, kind, *more):
    done = tool("check_data.py", data_list, "--data_type", kind, "--no_audio", "--nj", 1, *more)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("audio", [True, False])
def test_each_kind_of_odd_character_is_a_finding_with_its_name(lines, tmp_path, audio):
    make_raw_list(lines, str(tmp_path / "raw.list"))
    report = check(tmp_path / "raw.list", "raw", processes=1, tokenizer=None, audio=audio)
    assert characters_in(report) == KINDS
    assert report.losses == 0
    details = {finding.kind: finding.detail for finding in report.findings if finding.key != "all"}
    assert details["invisible_character"] == (
        "U+200B ZERO WIDTH SPACE, U+00AD SOFT HYPHEN in: a<U+200B>b c<U+00AD>"
    )
    assert details["decomposed_letter"].startswith("U+0065 LATIN SMALL LETTER E + U+0301 COMBINING")
    assert details["look_alike_letter"].startswith("a\u0441b (U+0441 CYRILLIC SMALL LETTER ES) in")


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_a_fix_mends_odd_texts_and_names_them(lines, tmp_path, kind):
    data_list, out = tmp_path / "data.list", tmp_path / "clean.list"
    if kind == "raw":
        make_raw_list(lines, str(data_list))
    else:
        pack(lines, tmp_path / "shards", str(data_list), ShardOptions(per_shard=3))
    done = of_tool(data_list, kind, "--fix", out)
    assert f"{out}: 5 utterances" in done.stderr
    assert f"{out}: 4 texts mended; {out}.texts.jsonl names them" in done.stderr
    assert texts_of(out, kind) == {key: mended for key, (_, mended) in TEXTS.items()}
    assert characters_in(check(out, kind, processes=1)) == {}
    assert {line["key"]: (line["before"], line["after"]) for line in ledger_of(out)} == {
        key: pair for key, pair in TEXTS.items() if key != "plain"
    }
    assert next(line for line in ledger_of(out) if line["key"] == "all")["kinds"] == list(KINDS)


def test_a_raw_line_keeps_its_other_fields_and_other_lines_stay_unchanged(lines, tmp_path):
    raw, wav = tmp_path / "raw.list", lines[0].wav
    odd = {"id": 7, "text": "a\u200bb", "key": "odd", "audio_filepath": wav, "note": "c\u200bd"}
    plain = f'{{"key":"plain",  "wav": "{wav}", "txt": "\\u4f60"}}'
    raw.write_text(f"{plain}\n{json.dumps(odd)}\n")
    of_tool(raw, "raw", "--fix", tmp_path / "clean.list")
    first, second = (tmp_path / "clean.list").read_text().splitlines()
    assert first == plain
    assert list(json.loads(second).items()) == list((odd | {"text": "ab"}).items())


def test_a_list_without_odd_texts_has_no_ledger_of_texts(lines, tmp_path):
    make_raw_list(lines[:1], str(tmp_path / "raw.list"))
    of_tool(tmp_path / "raw.list", "raw", "--fix", tmp_path / "clean.list")
    assert not (tmp_path / "clean.list.texts.jsonl").exists()
    assert (tmp_path / "clean.list").read_bytes() == (tmp_path / "raw.list").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", {"text": "a\u200bb", "n": 1}, {"text": "ab", "n": 1}),
        ("a.json", {"transcript": "\ufeffa\u200bb"}, {"transcript": "ab"}),
        ("a.txt", "\ufeffa\u200bb", "ab"),
        ("a.transcript", "a\u200bb", "ab"),
    ],
)
def test_the_member_with_the_text_is_mended_and_others_are_copied(
    lines, tmp_path, name, content, expected
):
    text = content if isinstance(content, str) else json.dumps(content)
    members = [
        (name, text),
        ("a.spk", "x\u200by"),
        ("a.png", b"\x89\xff"),
        ("a.wav", Path(lines[0].wav).read_bytes()),
    ]
    (tmp_path / "list").write_text(write_tar(tmp_path / "a.tar", members) + "\n")
    of_tool(tmp_path / "list", "shard", "--fix", tmp_path / "clean")
    with tarfile.open((tmp_path / "clean").read_text().strip()) as tar:
        copied = [(member.name, tar.extractfile(member).read()) for member in tar]
    mended = copied[0][1].decode()
    assert (mended if name != "a.json" else json.loads(mended)) == expected
    assert copied[1:] == [(name, as_bytes(data)) for name, data in members[1:]]
    assert texts_of(tmp_path / "clean", "shard") == {"a": "ab"}


def as_bytes(data):
    return data.encode() if isinstance(data, str) else data


def test_sound_shards_without_odd_texts_are_kept(lines, tmp_path):
    plain = [RawLine(f"p{number}", lines[0].wav, "ab") for number in range(2)]
    pack([*plain, *lines], tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=2))
    of_tool(tmp_path / "list", "shard", "--fix", tmp_path / "clean")
    before, after = ((tmp_path / name).read_text().split() for name in ("list", "clean"))
    assert after[0] == before[0]
    assert not set(after[1:]) & set(before)


def test_texts_of_shards_that_cannot_be_written_stay_and_are_named(lines, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    other = shutil.copy(lines[0].wav, tmp_path / "other.wav")
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    write_parquet([replace(lines[0], wav=other), lines[1]], tmp_path, 1)
    (tmp_path / "list").write_text(f"{tmp_path}/*.parquet\n")
    done = of_tool(tmp_path / "list", "shard", "--fix", tmp_path / "clean")
    assert "1 texts with odd characters stay, because their shards are remote" in done.stderr
    (line,) = ledger_of(tmp_path / "clean")
    assert (line["before"], line["after"]) == (TEXTS["hidden"][0], None)
    assert len(everything(open_list(str(tmp_path / "clean"), "shard"))) == 2


def test_a_text_of_invisible_characters_only_is_an_empty_text(lines, tmp_path):
    blank = RawLine("blank", lines[0].wav, "\u200b\u00ad")
    make_raw_list([*lines, blank], str(tmp_path / "raw.list"))
    report = check(tmp_path / "raw.list", "raw", processes=1, tokenizer=None)
    (lost,) = (finding for finding in report.findings if finding.kind == "empty_text")
    assert (lost.key, report.losses) == ("blank", 1)
    assert lost.detail.endswith("of audio, 2 invisible characters")
    done = tool("check_data.py", tmp_path / "raw.list", "--nj", 1, "--fix", tmp_path / "clean.list")
    assert done.returncode == 1
    assert "blank" not in texts_of(tmp_path / "clean.list", "raw")


def test_more_odd_texts_than_the_report_names_are_all_mended(lines, tmp_path, monkeypatch):
    monkeypatch.setattr("wenet_uio.prepare.diagnose.findings.KEPT", 2)
    many = [RawLine(f"u{number}", lines[0].wav, "a\u200bb") for number in range(5)]
    make_raw_list(many, str(tmp_path / "raw.list"))
    with opened_for_check(str(tmp_path / "raw.list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading(), audio=False)
        out = str(tmp_path / "clean.list")
        fixed = write_clean_list(corpus, report, out, str(tmp_path / "raw.list"))
    assert (len(report.findings), len(fixed.mended)) == (2, 5)
    assert set(texts_of(tmp_path / "clean.list", "raw").values()) == {"ab"}
