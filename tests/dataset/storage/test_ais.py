"""Data sets of NeMo in AIStore: `ais://` manifests, tars and audio relative to the manifest."""

import json
from pathlib import Path

import pytest

from tests.support.data.tars import everything, wav
from tests.support.storage.ais_server import serving_ais
from tools import convert_to_tarred
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.http_store import find_version
from wenet_uio.dataset.storage.versions import DriverError

COUNT = 6


@pytest.fixture
def buckets(tmp_path) -> Path:
    """A bucket `speech` with a manifest, its audio, and a tarred set, all in one folder."""
    folder = tmp_path / "buckets/speech/path to/set"
    (folder / "audio").mkdir(parents=True)
    lines = []
    for number in range(COUNT):
        (folder / f"audio/{number}.wav").write_bytes(wav(0.3 + number / 10, seed=number))
        lines.append(
            {
                "audio_filepath": f"audio/{number}.wav",
                "duration": 0.3 + number / 10,
                "text": f"text {number}",
            }
        )
    (folder / "manifest.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [
        f"--manifest_path={folder}/manifest.json",
        f"--target_dir={folder}/tarred",
        "--num_shards=2",
    ]
    assert convert_to_tarred.main(words) == 0
    return tmp_path / "buckets"


def read(folder, source):
    values = {key: value.format(folder=folder) for key, value in source.items()}
    corpus = open_corpus(MixtureConf.model_validate([values]), "raw")
    assert corpus.bad == []
    found = {each.key: (bytes_of(each.audio), each.text) for each in everything(corpus)}
    assert len(found) == COUNT
    return corpus.sources[0].corpus.digest, found


def bytes_of(audio):
    return Path(audio).read_bytes() if isinstance(audio, str) else bytes(audio)


RAW = {"type": "nemo", "manifest_filepath": "{folder}/manifest.json"}
TARRED = {
    "type": "nemo_tarred",
    "manifest_filepath": "{folder}/tarred/tarred_audio_manifest.json",
    "tarred_audio_filepaths": "{folder}/tarred/audio__OP_0..1_CL_.tar",
}


@pytest.mark.parametrize("source", [RAW, TARRED], ids=["single files", "tars"])
def test_a_manifest_and_its_audio_in_a_bucket_are_read_as_the_local_ones(
    buckets, monkeypatch, source
):
    local = read(f"{buckets}/speech/path to/set", source)
    with serving_ais(buckets, monkeypatch) as target:
        assert read("ais://speech/path to/set", source) == local
        again = len(target.answered)
        assert read("ais://speech/path to/set", source) == local
    folders = {
        Path(name).parent.name for method, name, _ in target.answered[:again] if method == "GET"
    }
    assert folders == ({"set", "audio"} if source is RAW else {"tarred"})


def test_a_part_of_a_tar_is_asked_for_by_range(buckets, monkeypatch):
    name = "speech/path to/set/tarred/audio_0.tar"
    with serving_ais(buckets, monkeypatch) as target:
        version = find_version(f"ais://{name}")
        assert (
            objects.read_range(f"ais://{name}", 512, 1024, version)
            == (buckets / name).read_bytes()[512:1024]
        )
        assert ("GET", name, "bytes=512-1023") in target.answered


def test_an_object_with_other_bytes_of_the_same_number_is_another_version(buckets, monkeypatch):
    path = buckets / "speech/path to/set/audio/0.wav"
    with serving_ais(buckets, monkeypatch):
        before = find_version("ais://speech/path to/set/audio/0.wav")
        path.write_bytes(path.read_bytes()[::-1])
        after = find_version("ais://speech/path to/set/audio/0.wav")
    assert before.size == after.size
    assert before != after


def test_a_missing_object_and_a_missing_endpoint_are_named(buckets, monkeypatch):
    with (
        serving_ais(buckets, monkeypatch),
        pytest.raises(FileNotFoundError, match="ais://speech/no: HTTP 404"),
    ):
        find_version("ais://speech/no")
    monkeypatch.delenv("AIS_ENDPOINT")
    with pytest.raises(DriverError, match="set AIS_ENDPOINT to the http"):
        find_version("ais://speech/no")
