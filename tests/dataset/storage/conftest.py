"""A cache and a short deadline for each test, and a corpus for servers."""

import gzip
from pathlib import Path

import pytest

from tests.support.storage.remote_corpus import note_children
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    """The folder of an empty cache."""
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "10")
    note_children()
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def utterances(corpora) -> list[RawLine]:
    """48 utterances of FSDD."""
    wavs = sorted((corpora / "fsdd" / "recordings").glob("*.wav"))[::63]
    return [RawLine(wav.stem, str(wav), "abc"[int(wav.stem[0]) % 3]) for wav in wavs]


@pytest.fixture(scope="session")
def store(tmp_path_factory, utterances) -> Path:
    """A folder of 4 tars, their gzipped copies, and the audio files, for a server. Tests must not
    change it.
    """
    folder = tmp_path_factory.mktemp("store")
    make_shard_list(utterances, folder, str(folder / "local.list"), ShardOptions(per_shard=12))
    for tar in folder.glob("*.tar"):
        (folder / f"{tar.name}.gz").write_bytes(gzip.compress(tar.read_bytes(), 1))
    for line in utterances:
        (folder / Path(line.wav).name).write_bytes(Path(line.wav).read_bytes())
    return folder


@pytest.fixture
def local(store) -> str:
    """The list of the tars as local files."""
    return str(store / "local.list")
