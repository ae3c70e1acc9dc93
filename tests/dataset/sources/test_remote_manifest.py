"""Manifests in remote stores."""

from __future__ import annotations

import gzip

import pytest

from tests.support.storage.servers import serving
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.sources.lists import local_manifest

LINES = b'{"audio_filepath": "a.wav", "text": "one", "duration": 1.0}\n' * 20
WHOLE = gzip.compress(LINES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def test_a_packed_manifest_is_read_with_the_uris_of_its_audio(folder):
    (folder / "manifest.json.gz").write_bytes(WHOLE)
    with serving(folder) as server, open(local_manifest(f"{server.url}/manifest.json.gz")) as copy:
        assert copy.read().count(f'"{server.url}/a.wav"') == 20


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[:-20],
        WHOLE[:-4],
        LINES,
        WHOLE[:-8] + bytes(4) + WHOLE[-4:],
        WHOLE[:12] + b"\xff" * 8 + WHOLE[20:],
        WHOLE + b"more",
    ],
    ids=["cut", "cut in the trailer", "no gzip", "checksum", "contents", "more behind it"],
)
def test_a_damaged_packed_manifest_is_named_without_its_signature(folder, content):
    (folder / "manifest.json.gz").write_bytes(content)
    with serving(folder) as server, pytest.raises(ListError) as caught:
        local_manifest(f"{server.url}/manifest.json.gz?signature=secret")
    assert "/manifest.json.gz?…: cut short or damaged (" in str(caught.value)
    assert "secret" not in str(caught.value)
