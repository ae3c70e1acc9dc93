"""The rows of the matrix of ends: what a training reads. Each row writes the data of a cell.

Rows of list formats and of source types are made from the records in code, so that a new one is a
row by itself, or its test says what is missing.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import yaml

from tests.dataset import test_formats
from tests.dataset.formats.test_streaming_sets import write_litdata, write_mds
from tests.support.audio.arrays import npy, pth
from tests.support.data.kaldi_features import write_ark
from tests.support.data.packing import pack
from tests.support.data.tars import write_tar
from tests.support.ends.spoken import CV, TRAIN, speak
from wenet_uio.config.source import SOURCES
from wenet_uio.dataset.corpus.base import Kind
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.kaldi_tables import read_utterances
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.sharding import ShardOptions

PER_SHARD = 10
BINS = 24
"""Features of a frame."""


@dataclass(frozen=True)
class Data:
    """What the commands of a cell are given."""

    train: str
    cv: str
    data_type: str = "raw"
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of train.yaml."""
    utterances: int = TRAIN
    """Those that an epoch plans."""


@dataclass(frozen=True)
class Row:
    """What is read."""

    write: Callable[[Path], Data]
    sources: tuple[str, ...] = ()
    """Types of sources that it covers."""
    kinds: tuple[Kind, ...] = ("audio",)
    """Kinds of samples that it covers."""
    refused: str = ""
    """What training says if it does not learn such samples."""


def sets(folder: Path) -> dict[str, list[RawLine]]:
    """Return the lines of both sets, whose audio is written."""
    sizes = {"train": TRAIN, "cv": CV}
    return {name: speak(folder / "wav", name, count) for name, count in sizes.items()}


def raw_list(folder: Path, name: str, lines: Sequence[RawLine]) -> str:
    path = str(folder / f"{name}.list")
    assert make_raw_list(lines, path) == []
    return path


def raw(folder: Path, **keys: Any) -> Data:
    lists = {name: raw_list(folder, name, lines) for name, lines in sets(folder).items()}
    return Data(lists["train"], lists["cv"], keys=keys)


def in_format(form: str, folder: Path) -> Data:
    """Write both sets in a format of FORMATS."""
    lists, types = {}, set()
    for name, lines in sets(folder).items():
        own = folder / name / "set"
        own.mkdir(parents=True)
        lists[name], data_type = test_formats.make(form, lines, own)
        types.add(data_type)
    (only,) = types
    return Data(lists["train"], lists["cv"], data_type=only)


def shards(folder: Path) -> Data:
    lists = {name: str(folder / f"{name}.list") for name in ("train", "cv")}
    for name, lines in sets(folder).items():
        assert pack(lines, folder / name, lists[name], ShardOptions(per_shard=PER_SHARD)) == []
    return Data(lists["train"], lists["cv"], data_type="shard")


def tar_gz(folder: Path) -> Data:
    return tars(folder, audio=lambda line: ("wav", Path(line.wav).read_bytes()), zipped=True)


def audio_pth(folder: Path) -> Data:
    def tensor(line: RawLine) -> tuple[str, bytes]:
        samples, _ = soundfile.read(line.wav, dtype="int16")
        return "audio.pth", pth(torch.from_numpy(samples))

    return tars(folder, audio=tensor)


def cat_tars(folder: Path) -> Data:
    return tars(folder, audio=lambda _: ("mat.npy", npy(next(matrices()))), text="label.txt")


def tars(
    folder: Path,
    *,
    audio: Callable[[RawLine], tuple[str, bytes]],
    text: str = "txt",
    zipped: bool = False,
) -> Data:
    """Write a tar of each set by hand, and a list with its path."""
    lists = {}
    for name, lines in sets(folder).items():
        members: list[tuple[str, bytes]] = []
        for line in lines:
            field_of_audio, content = audio(line)
            members += [(f"{line.key}.{field_of_audio}", content)]
            members += [(f"{line.key}.{text}", line.text.encode())]
            if field_of_audio == "audio.pth":
                members += [(f"{line.key}.json", b'{"sample_rate": 16000}')]

        path = folder / f"{name}.tar"
        write_tar(path, members)
        if zipped:
            path = folder / f"{name}.tar.gz"
            path.write_bytes(gzip.compress((folder / f"{name}.tar").read_bytes()))
        (folder / f"{name}.list").write_text(f"{path}\n")
        lists[name] = str(folder / f"{name}.list")

    return Data(lists["train"], lists["cv"], data_type="shard")


def segments(folder: Path) -> Data:
    """All utterances of a set are parts of one recording."""
    lists = {}
    for name, lines in sets(folder).items():
        parts, cut, start = [], [], 0.0
        for line in lines:
            samples, rate = soundfile.read(line.wav, dtype="int16")
            parts.append(samples)
            end = start + len(samples) / rate
            whole = str(folder / f"{name}.wav")
            cut.append(RawLine(line.key, whole, line.text, start=start, end=end))
            start = end
        soundfile.write(folder / f"{name}.wav", np.concatenate(parts), rate)
        lists[name] = raw_list(folder, name, cut)

    return Data(lists["train"], lists["cv"])


def matrices(seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    while True:
        yield random.normal(size=(40, BINS)).astype(np.float32)


def kaldi_feats(folder: Path, *, packed: bool) -> Data:
    """Kaldi's feats.scp as a raw list, or packed into shards."""
    lists = {}
    for name, lines in sets(folder).items():
        own = folder / name
        own.mkdir()
        write_ark(own, dict(zip([line.key for line in lines], matrices(), strict=False)))
        (own / "text").write_text("".join(f"{line.key} {line.text}\n" for line in lines))
        read = read_utterances(str(own / "feats.scp"), str(own / "text"))
        lists[name] = str(folder / f"{name}.list")
        if packed:
            assert pack(read, own / "tars", lists[name], ShardOptions(per_shard=PER_SHARD)) == []
        else:
            raw_list(folder, name, read)

    return Data(lists["train"], lists["cv"], data_type="shard" if packed else "raw")


def nemo_buckets(folder: Path) -> dict[str, Any]:
    """Two buckets, each of tars with their manifests."""
    lines = sets(folder)["train"]
    halves = (lines[: TRAIN // 2], lines[TRAIN // 2 :])
    buckets: dict[str, list[list[str]]] = {"manifest_filepath": [], "tarred_audio_filepaths": []}
    for number, half in enumerate(halves):
        own = folder / f"bucket{number}"
        own.mkdir()
        test_formats.write_nemo(half, own)
        buckets["manifest_filepath"].append([str(own / "tarred_audio_manifest.json")])
        buckets["tarred_audio_filepaths"].append([str(own / "audio__OP_0..0_CL_.tar")])

    return {"type": "nemo_tarred", **buckets}


def nemo_manifest(folder: Path) -> dict[str, Any]:
    lines = sets(folder)["train"]
    entries = (
        {"audio_filepath": line.wav, "text": line.text, "duration": test_formats.seconds(line)}
        for line in lines
    )
    path = folder / "train.json"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return {"type": "nemo", "manifest_filepath": str(path)}


def lhotse_cuts(folder: Path) -> dict[str, Any]:
    path = str(folder / "cuts.jsonl.gz")
    test_formats.cuts_of(sets(folder)["train"]).to_file(path)
    return {"type": "lhotse_cuts", "cuts_path": path}


def lhotse_shar(folder: Path) -> dict[str, Any]:
    own = folder / "shar"
    own.mkdir(parents=True)
    cuts = test_formats.cuts_of(sets(folder)["train"])
    cuts.to_shar(str(own), {"recording": "wav"}, shard_size=PER_SHARD)
    return {"type": "lhotse_shar", "shar_path": str(own)}


def container(kind: str, folder: Path) -> dict[str, Any]:
    own = folder / kind
    own.mkdir()
    lines = sets(folder)["train"]
    if kind == "parquet":
        test_formats.write_parquet(lines, own, PER_SHARD)
    else:
        {"mds": write_mds, "litdata": write_litdata}[kind](lines, own)
    return {"type": kind, "paths": str(own)}


def in_list(data_type: str, folder: Path) -> dict[str, Any]:
    data = raw(folder) if data_type == "raw" else shards(folder)
    return {"type": data_type, "data_list": data.train}


def texts(folder: Path) -> dict[str, Any]:
    path = folder / "texts.txt"
    path.write_text("".join(f"{'abc'[number % 3] * 3}\n" for number in range(TRAIN)))
    return {"type": "txt", "paths": str(path)}


def pairs(folder: Path) -> dict[str, Any]:
    path = texts(folder)["paths"]
    return {"type": "txt_pair", "source_paths": path, "target_paths": path}


def conversations(folder: Path) -> dict[str, Any]:
    turns = [{"from": "user", "value": "ab", "type": "text"}]
    turns += [{"from": "assistant", "value": "c", "type": "text"}]
    lines = ({"id": f"c{number}", "conversations": turns} for number in range(TRAIN))
    path = folder / "talk.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"type": "multimodal_conversation", "manifest_filepath": str(path)}


def to_speak(folder: Path) -> dict[str, Any]:
    return {"type": "tts_text", "manifest_filepath": texts(folder)["paths"]}


def group(folder: Path) -> dict[str, Any]:
    """Two sources with weights, of which an epoch takes all utterances."""
    lines = sets(folder)["train"]
    parts = {"a": lines[: TRAIN // 2], "b": lines[TRAIN // 2 :]}
    sources = [
        {"type": "raw", "data_list": raw_list(folder, name, part), "weight": weight}
        for (name, part), weight in zip(parts.items(), (0.7, 0.3), strict=True)
    ]
    return {"type": "group", "input_cfg": sources, "weight": 1.0}


WRITERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "raw": partial(in_list, "raw"),
    "shard": partial(in_list, "shard"),
    "nemo": nemo_manifest,
    "nemo_tarred": nemo_buckets,
    "lhotse": lhotse_cuts,
    "lhotse_cuts": lhotse_cuts,
    "lhotse_shar": lhotse_shar,
    "parquet": partial(container, "parquet"),
    "mds": partial(container, "mds"),
    "litdata": partial(container, "litdata"),
    "txt": texts,
    "txt_pair": pairs,
    "multimodal_conversation": conversations,
    "tts_text": to_speak,
    "group": group,
}
"""Writers of each type of SOURCES; each returns its entry in the yaml of a mixture."""
KINDS_OF_SOURCES: dict[str, tuple[Kind, ...]] = {
    "txt": ("text",),
    "txt_pair": ("pair",),
    "multimodal_conversation": ("conversation",),
    "tts_text": ("to_speak",),
}
"""Kinds of samples of sources without audio."""
SPEAKS = {"operators": [{"use": "tests.support.ends.own_code:Speaks", "after": "decode"}]}
KEYS_OF_SOURCES: dict[str, dict[str, Any]] = {
    "txt": {"model": "tests.support.ends.own_code:OWN"},
    "txt_pair": {"model": "tests.support.ends.own_code:OWN"},
    "tts_text": {"dataset_conf": SPEAKS},
}


def mixture(source: str, folder: Path) -> Data:
    """Write the yaml of a mixture with one type of sources; that of texts has audio, too."""
    data = raw(folder / "raw")
    entries = [WRITERS[source](folder)]
    if source in KINDS_OF_SOURCES:
        entries.append({"type": "raw", "data_list": data.train})
    path = folder / "mixture.yaml"
    path.write_text(yaml.safe_dump({"sources": entries}))
    keys = KEYS_OF_SOURCES.get(source, {})
    return Data(str(path), data.cv, keys=keys, utterances=TRAIN * len(entries))


NOISY = {
    "dataset_conf": {
        "speed_perturb": True,
        "noise_conf": {"prob": 0.5, "made": ["babble", "pink"]},
        "spec_sub": True,
    }
}
REFUSED = {"multimodal_conversation": "the models here do not learn conversations"}
USUAL = "raw audio"
ROWS: dict[str, Row] = {
    USUAL: Row(raw),
    "shards": Row(shards),
    ".tar.gz": Row(tar_gz),
    "WebDataset with audio.pth": Row(audio_pth),
    "segments of recordings": Row(segments),
    "feats.scp, raw": Row(partial(kaldi_feats, packed=False), kinds=("features",)),
    "feats.scp, in shards": Row(partial(kaldi_feats, packed=True), kinds=("features",)),
    "mat.npy and label.txt": Row(cat_tars),
    "speed and noise": Row(partial(raw, **NOISY)),
    **{
        f"list format {form}": Row(partial(in_format, form))
        for form in test_formats.FORMATS
        if form != "raw"
    },
    **{
        f"source {source}": Row(
            partial(mixture, source),
            (source,),
            KINDS_OF_SOURCES.get(source, ("audio",)),
            REFUSED.get(source, ""),
        )
        for source in SOURCES
    },
}
