"""Containers that state their length x doors that read a whole file: a file that ends early is told.

The index of a NeMo manifest has the durations of its lines; readers name audio of another length.
"""

from __future__ import annotations

import io
import logging
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.data.parquet import write_table
from wenet_uio.base.executor import Executor
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.cmvn_stats import cmvn_statistics
from wenet_uio.prepare.joining import Joining, join_utterances
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.manifests import convert_manifest
from wenet_uio.prepare.sharding import ShardOptions

CONTAINERS = ("WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "NIST")
"""Names in libsndfile."""
SECONDS = 2
IN_THREAD = Executor(1, "threads")


def transcribed_text(audio: Path | bytes | io.BytesIO) -> str:
    """What a transcription logs; its words do not matter."""
    from wenet_uio.addons.listen.inputs import Input
    from wenet_uio.addons.listen.tracks import Track, Tracks

    recording = Input(audio)
    recording.open()
    recording.close(Tracks((Track(0),)), has_words=True, has_speech=True)
    return ""


def with_name(file: io.BytesIO, path: Path) -> io.BytesIO:
    file.name = path.name
    return file


def utterance(path: Path) -> list[RawLine]:
    return [RawLine(path.stem, str(path), "x")]


def bad_of(corpus: Corpus) -> str:
    return str(corpus.bad)


def listed(path: Path) -> str:
    data_list = path.with_name("raw.list")
    data_list.write_text(utterance(path)[0].to_json() + "\n")
    return bad_of(open_list(str(data_list), "raw"))


def packed(path: Path) -> str:
    target = str(path.with_name("shard.list"))
    folder = path.with_name("shards")
    return str(
        make_shard_list(utterance(path), folder, target, ShardOptions(per_shard=1), IN_THREAD)
    )


def in_tar(path: Path) -> str:
    with tarfile.open(path.with_suffix(".tar"), "w") as tar:
        tar.add(path, f"{path.stem}.wav")
        tar.addfile(tarfile.TarInfo(f"{path.stem}.txt"))
    data_list = path.with_name("shard.list")
    data_list.write_text(f"{path.with_suffix('.tar')}\n")
    return bad_of(open_list(str(data_list), "shard"))


def in_parquet(path: Path) -> str:
    audio = {"bytes": path.read_bytes(), "path": path.name}
    write_table(path.with_name("a.parquet"), [{"id": path.stem, "audio": audio, "text": "x"}], 1)
    (opened,) = parse_source({"type": "parquet", "paths": str(path.parent)}).lists()
    return bad_of(open_list(*opened))


def converted(path: Path) -> str:
    listed(path)
    target = str(path.with_name("manifest.json"))
    return str(convert_manifest(str(path.with_name("raw.list")), "raw", target, "nemo", IN_THREAD))


DOORS: dict[str, Callable[[Path], object]] = {
    "transcribe a file": lambda path: transcribed_text(path),
    "transcribe bytes": lambda path: transcribed_text(path.read_bytes()),
    "transcribe a file object": lambda path: transcribed_text(
        with_name(io.BytesIO(path.read_bytes()), path)
    ),
    "raw list": listed,
    "tar": in_tar,
    "parquet": in_parquet,
    "make_raw_list": lambda path: make_raw_list(utterance(path), str(path.with_name("raw.list"))),
    "make_shard_list": packed,
    "convert_manifest": converted,
    "join_utterances": lambda path: join_utterances(
        utterance(path), path.with_name("joined"), Joining(longest=5.0), IN_THREAD
    ),
    "compute_cmvn_stats": lambda path: cmvn_statistics(utterance(path), DatasetConf(), IN_THREAD),
}
"""{door: what it tells about a file}."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_file_that_is_cut_short_is_told_and_a_whole_one_is_not(
    container: str, door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, SECONDS * 16000)
    encoded = io.BytesIO()
    soundfile.write(encoded, noise, 16000, format=container, subtype="PCM_16")

    for share in (1.0, 0.6):
        path = tmp_path / f"{share}" / "speech.wav"
        path.parent.mkdir()
        path.write_bytes(encoded.getvalue()[: int(share * len(encoded.getvalue()))])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            try:
                told = str(DOORS[door](path))
            except ValueError as error:
                told = str(error)

        told += caplog.text
        assert ("cut short" in told) == (share < 1), told
        assert share == 1 or "speech" in told or door == "transcribe bytes", told
