"""A table of transcripts becomes the same data list, whatever program wrote it."""

from __future__ import annotations

import json
from shutil import copyfile

import pytest

from tests.prepare.test_layouts import run
from tests.support.data.tables import CHINESE, GERMAN, OF_ANY_LANGUAGE, OF_CHINESE, OF_GERMAN
from tools import convert_manifest

TABLES = [
    pytest.param(texts, write, id=f"{name}, {language}")
    for language, texts, forms in (
        ("German", GERMAN, OF_ANY_LANGUAGE | OF_GERMAN),
        ("Chinese", CHINESE, OF_ANY_LANGUAGE | OF_CHINESE),
    )
    for name, write in forms.items()
]


@pytest.fixture
def folder(tmp_path, corpora):
    def with_audio(texts):
        recordings = sorted((corpora / "fsdd" / "recordings").glob("*_theo_0.wav"))
        for wav, recording in zip(texts, recordings, strict=False):
            (tmp_path / wav).parent.mkdir(exist_ok=True)
            copyfile(recording, tmp_path / wav)
        return tmp_path

    return with_audio


@pytest.mark.parametrize(("texts", "write"), TABLES)
def test_one_table_in_any_form_becomes_the_same_data_list(
    texts, write, folder, monkeypatch, capsys
):
    corpus = folder(texts)
    table = write(corpus, texts)
    run(monkeypatch, convert_manifest, table, corpus / "a.list", "--to", "raw")

    lines = [json.loads(line) for line in (corpus / "a.list").read_text().splitlines()]
    read = [(line["key"], line["wav"], line["txt"]) for line in lines]
    keys = [wav.rpartition("/")[2].removesuffix(".wav").replace(" ", "_") for wav in texts]
    assert read == [
        (key, str(corpus / wav), text) for key, (wav, text) in zip(keys, texts.items(), strict=True)
    ]
    told = capsys.readouterr().out
    for wav, text in list(texts.items())[:3]:
        assert f'{corpus / wav}: "{text}"' in told
