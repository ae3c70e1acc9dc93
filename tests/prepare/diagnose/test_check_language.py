"""A check with the tokenizer aggregate: samples whose language is not known."""

from __future__ import annotations

import json

from tests.support.data.tars import wav
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.text.aggregate import AggregateTokenizer
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

FIELDS = {"a": {"lang": "en"}, "b": {"language": "xx"}, "c": {}, "d": {"lang": "fr"}}


def test_samples_without_a_known_language_are_named_and_others_use_the_units_of_theirs(tmp_path):
    lines = []
    for number, (key, fields) in enumerate(FIELDS.items()):
        (tmp_path / f"{key}.wav").write_bytes(wav(0.5, seed=number))
        lines.append({"key": key, "wav": f"{tmp_path}/{key}.wav", "txt": "ab", **fields})
    (tmp_path / "x.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    parts = {
        name: Tokenizer(CharSplitter(), {"<unk>": 0, "a": 1, last: 2})
        for name, last in (("en", "b"), ("xx", "z"))
    }
    reading = Reading(tokenizer=AggregateTokenizer(parts))
    with opened_for_check(str(tmp_path / "x.list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, reading, audio=True, processes=1)
    found = {
        finding.key: finding
        for finding in report.findings
        if finding.kind in ("unknown_language", "unknown_unit")
    }
    assert {key: finding.kind for key, finding in found.items()} == {
        "b": "unknown_unit",
        "c": "unknown_language",
        "d": "unknown_language",
    }
    assert found["d"].detail == "language 'fr' has no tokenizer; known: en, xx"
    assert report.unseen == []
