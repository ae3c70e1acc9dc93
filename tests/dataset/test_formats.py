"""The same utterances in every supported format give the same batches, bit for bit."""

import json
import os
import threading
from pathlib import Path

import lhotse
import pytest
import soundfile
import torch
import webdataset

from tests.support.data.parquet import write_parquet
from tests.support.data.tars import wav, write_tar
from tests.support.storage.servers import FaultyServer
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import RawLine, read_shard_list
from wenet_uio.dataset.formats.lhotse_cuts import list_of_cuts
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

PER_SHARD = 10
FORMATS = ("raw", "wenet", "webdataset", "nemo", "nemo_sharded", "shar", "cuts", "parquet")


class Conf:
    dataset_conf = DatasetConf(
        resample_conf={"resample_rate": 8000},
        speed_perturb=True,
        fbank_conf={"num_mel_bins": 20, "dither": 1.0},
        batch_conf={"batch_type": "dynamic", "max_frames_in_batch": 400},
    )


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[RawLine]:
    """50 recordings of digits if the corpus is installed, else noise."""
    folder = Path(os.environ.get("WENET_UIO_CORPORA", "")) / "fsdd" / "recordings"
    wavs = sorted(folder.glob("*.wav"))[::60]
    if not wavs:
        made = tmp_path_factory.mktemp("wav")
        wavs = [made / f"{number % 10}_x_{number}.wav" for number in range(50)]
        for number, path in enumerate(wavs):
            path.write_bytes(wav(0.2 + number / 100, seed=number))
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    return [RawLine(path.stem, str(path), words[int(path.name[0])]) for path in wavs]


def shards_of(lines):
    return [lines[first : first + PER_SHARD] for first in range(0, len(lines), PER_SHARD)]


def audio(line):
    return Path(line.wav).read_bytes()


def write_wenet(lines, folder):
    for number, shard in enumerate(shards_of(lines)):
        members = [
            item for u in shard for item in ((f"{u.key}.txt", u.text), (f"{u.key}.wav", audio(u)))
        ]
        write_tar(folder / f"shards_{number:09d}.tar", members)
    return f"shards_{{{0:09d}..{len(shards_of(lines)) - 1:09d}}}.tar"


def write_webdataset(lines, folder):
    """With lossless flac and texts in JSON."""
    with webdataset.ShardWriter(
        str(folder / "w-%06d.tar"), maxcount=PER_SHARD, verbose=0
    ) as writer:
        for line in lines:
            samples, rate = soundfile.read(line.wav, dtype="int16")
            soundfile.write(folder / "a.flac", samples, rate)
            sample = {"audio.flac": (folder / "a.flac").read_bytes(), "json": {"text": line.text}}
            writer.write({"__key__": line.key, **sample})
    return f"w-{{{0:06d}..{len(shards_of(lines)) - 1:06d}}}.tar"


def write_nemo(lines, folder):
    manifest = []
    for number, shard in enumerate(shards_of(lines)):
        write_tar(
            folder / f"audio_{number}.tar", [(f"{line.key}.wav", audio(line)) for line in shard]
        )
        entries = [
            {
                "audio_filepath": f"{line.key}.wav",
                "text": line.text,
                "duration": seconds(line),
                "shard_id": number,
            }
            for line in shard
        ]
        (folder / f"manifest_{number}.json").write_text(
            "".join(json.dumps(entry) + "\n" for entry in entries)
        )
        manifest.extend(entries)
    (folder / "tarred_audio_manifest.json").write_text(
        "".join(json.dumps(entry) + "\n" for entry in manifest)
    )


def seconds(line):
    return round(soundfile.info(line.wav).duration, 2)


def cuts_of(lines):
    cuts = []
    for line in lines:
        recording = lhotse.Recording.from_file(line.wav)
        supervision = lhotse.SupervisionSegment(
            line.key, line.key, 0, recording.duration, text=line.text
        )
        cuts.append(
            lhotse.MonoCut(line.key, 0, recording.duration, 0, [supervision], recording=recording)
        )
    return lhotse.CutSet.from_cuts(cuts)


def make(form, lines, folder):
    """Write the utterances in a format; returns the path and the data type of their list."""
    path = str(folder / "data.list")
    if form == "raw":
        make_raw_list(lines, path, PER_SHARD)
        return path, "raw"
    if form == "cuts":
        cuts_of(lines).to_file(str(folder / "cuts.jsonl.gz"))
        path = list_of_cuts(str(folder / "cuts.jsonl.gz"))
        build_index(path, "raw", PER_SHARD)
        return path, "raw"
    if form == "shard":
        make_shard_list(lines, folder / "shards", path, ShardOptions(per_shard=PER_SHARD))
        return path, "shard"
    if form == "wenet":
        content = f"{folder}/{write_wenet(lines, folder)}"
    elif form == "parquet":
        write_parquet(lines, folder, PER_SHARD)
        content = f"{folder}/*.parquet"
    elif form == "webdataset":
        content = f"{folder}/{write_webdataset(lines, folder)}"
    elif form == "shar":
        cuts_of(lines).to_shar(str(folder), {"recording": "wav"}, shard_size=PER_SHARD)
        (folder.parent / "shar.list").write_text(
            f"{folder}/recording.*.tar\t{folder}/cuts.*.jsonl.gz\n"
        )
        return str(folder.parent / "shar.list"), "shard"
    else:
        assert form in ("nemo", "nemo_sharded"), f"{form}: nothing writes this format"
        write_nemo(lines, folder)
        numbers = f"_OP_0..{len(shards_of(lines)) - 1}_CL_"
        manifests = (
            f"manifest_{numbers}.json" if form == "nemo_sharded" else "tarred_audio_manifest.json"
        )
        content = f"{folder}/audio_{numbers}.tar\t{folder}/{manifests}"
    Path(path).write_text(content + "\n")
    return path, "shard"


def batches(data_list, data_type):
    tokenizer = Tokenizer(CharSplitter(), {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "e": 3})
    loader = build_loader(data_list, data_type, Conf, tokenizer, training=True)
    loader.set_epoch(1)
    return list(loader)


@pytest.fixture(scope="module")
def reference(lines, tmp_path_factory):
    data_list = make("shard", lines, tmp_path_factory.mktemp("reference"))
    return open_list(*data_list).digest, batches(*data_list)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_digest_and_the_same_batches(form, lines, reference, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    data_list = make(form, lines, folder)
    corpus = open_list(*data_list)
    digest, expected = reference
    assert corpus.bad == []
    assert corpus.digest == digest
    found = batches(*data_list)
    assert [batch.keys for batch in found] == [batch.keys for batch in expected]
    assert sum(len(batch) for batch in found) == len(lines)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours.feats, theirs.feats)
        assert torch.equal(ours.target, theirs.target)
        assert ours.texts == theirs.texts


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Serve a folder over HTTP, with a cache for this test alone."""
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    servers = []

    def served(folder):
        servers.append(FaultyServer(folder))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].url

    yield served
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("form", ["wenet", "webdataset", "nemo", "nemo_sharded", "shar", "parquet"])
def test_every_format_of_shards_gives_the_same_batches_from_a_server(
    form, lines, reference, tmp_path, serve
):
    folder = tmp_path / "set"
    folder.mkdir()
    data_list, data_type = make(form, lines, folder)
    shards = "".join(f"{shard}\n" for shard in read_shard_list(data_list))
    Path(data_list).write_text(shards.replace(str(folder), serve(folder)))
    corpus = open_list(data_list, data_type)
    digest, expected = reference
    assert corpus.bad == []
    assert corpus.digest == digest
    for ours, theirs in zip(batches(data_list, data_type), expected, strict=True):
        assert ours.keys == theirs.keys
        assert torch.equal(ours.feats, theirs.feats)


def test_a_manifest_of_nemo_on_a_server_names_audio_relative_to_itself(lines, tmp_path, serve):
    folder = tmp_path / "set"
    folder.mkdir()
    for line in lines[:5]:
        (folder / Path(line.wav).name).write_bytes(Path(line.wav).read_bytes())
    entries = [{"audio_filepath": Path(line.wav).name, "text": line.text} for line in lines[:5]]
    (folder / "dev.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    url = serve(folder)
    (found,) = parse_source({"type": "nemo", "manifest_filepath": f"{url}/dev.json"}).lists()
    corpus = open_list(*found)
    assert corpus.bad == []
    assert corpus.is_remote
    (local,) = parse_source({"type": "nemo", "manifest_filepath": str(folder / "dev.json")}).lists()
    assert corpus.digest == open_list(*local).digest
    (folder / "dev.json").write_text(json.dumps(entries[0]) + "\n{broken\n")
    os.utime(folder / "dev.json", (1, 1))
    (found,) = parse_source({"type": "nemo", "manifest_filepath": f"{url}/dev.json?x=1"}).lists()
    corpus = open_list(*found)
    assert corpus.num_samples == 1
    assert len(corpus.bad) == 1


def test_a_tarred_set_of_nemo_on_a_server_is_a_source(lines, reference, tmp_path, serve):
    folder = tmp_path / "set"
    folder.mkdir()
    make("nemo", lines, folder)
    url = serve(folder)
    source = {
        "type": "nemo_tarred",
        "manifest_filepath": f"{url}/tarred_audio_manifest.json",
        "tarred_audio_filepaths": f"{url}/audio__OP_0..4_CL_.tar",
    }
    (found,) = parse_source(source).lists()
    assert open_list(*found).digest == reference[0]
