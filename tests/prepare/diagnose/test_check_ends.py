"""A check of segments that end after their audio, in every kind of list."""

from __future__ import annotations

import json
from pathlib import Path

import lhotse
import pytest

from tests.support.data.tars import wav, write_tar
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.kinds.conversation import ConversationCorpus
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_shards import opened_for_check

SEGMENTS = {"short": (0.5, 1.0), "near": (0.5, 1.05), "far": (0.5, 2.0)}
"""{text: start and end}; the audio has 1 s."""


def entries(name: str) -> list[dict]:
    return [
        {
            "key": text,
            "audio_filepath": name,
            "text": text,
            "offset": start,
            "duration": end - start,
        }
        for text, (start, end) in SEGMENTS.items()
    ]


def raw(folder: Path) -> tuple[str, str]:
    lines = [
        {"key": text, "wav": f"{folder}/a.wav", "txt": text, "start": start, "end": end}
        for text, (start, end) in SEGMENTS.items()
    ]
    (folder / "raw.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "raw.list"), "raw"


def tarred(folder: Path) -> tuple[str, str]:
    write_tar(folder / "audio_0.tar", [("a.wav", (folder / "a.wav").read_bytes())])
    (folder / "m.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries("a.wav")))
    (folder / "shard.list").write_text(f"{folder}/audio_0.tar\t{folder}/m.json\n")
    return str(folder / "shard.list"), "shard"


def cuts(folder: Path) -> tuple[str, str]:
    recording = {
        "id": "a",
        "sampling_rate": 8000,
        "num_samples": 8000,
        "duration": 1.0,
        "channel_ids": [0],
    }
    recording["sources"] = [{"type": "file", "channels": [0], "source": f"{folder}/a.wav"}]
    found = []
    for text, (start, end) in SEGMENTS.items():
        said = {
            "id": text,
            "recording_id": "a",
            "start": 0.0,
            "duration": end - start,
            "channel": 0,
            "text": text,
        }
        cut = {
            "id": text,
            "start": start,
            "duration": end - start,
            "channel": 0,
            "supervisions": [said],
        }
        found.append({**cut, "recording": recording, "type": "MonoCut"})
    (folder / "cuts.jsonl").write_text("".join(json.dumps(cut) + "\n" for cut in found))
    assert len(list(lhotse.CutSet.from_jsonl_lazy(folder / "cuts.jsonl"))) == len(SEGMENTS)
    (list_and_type,) = parse_source(
        {"type": "lhotse_cuts", "cuts_path": str(folder / "cuts.jsonl")}
    ).lists()
    return list_and_type[:2]


def test_an_audio_turn_of_a_conversation_past_the_end_is_named(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(1.0))
    turns = {
        text: [
            {
                "from": "user",
                "type": "audio",
                "value": f"{tmp_path}/a.wav",
                "offset": start,
                "duration": end - start,
            }
        ]
        for text, (start, end) in SEGMENTS.items()
    }
    lines = [{"id": text, "conversations": found} for text, found in turns.items()]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = check_corpus(
        ConversationCorpus(f"{tmp_path}/chat.jsonl", 0.08, "[audio]"), [], Reading(), processes=1
    )
    assert [(finding.key, finding.kind) for finding in report.findings if finding.key == "far"] == [
        ("far", "changed_length")
    ]


@pytest.mark.parametrize("make", [raw, tarred, cuts])
def test_a_segment_past_the_end_is_named_with_both_times(make, tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(1.0))
    with opened_for_check(*make(tmp_path)) as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading(), processes=1)
    kinds = ("past_the_end", "changed_length", "not_indexed")
    findings = {finding.key: finding for finding in report.findings if finding.kind in kinds}
    assert set(findings) == {"far"}
    if findings["far"].kind != "changed_length":
        assert "the segment ends at 2.00 s, the audio at 1.00 s" in findings["far"].detail
