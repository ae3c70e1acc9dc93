"""Containers x damage x doors: what comes out equals FFmpeg's decoding, or is named.

Each cell is a file in one container, perhaps damaged, that enters by one door. `equal`: its samples
are those of FFmpeg's decoding of the same bytes, or of the recording, within the tolerance of the
codec. `named`: it is refused, and the message has its key or path. Any other cell fails the test.
In every change a plane of the cells runs, which has each pair of a container, a damage and a door;
with `--all` every cell. The table is printed: `pytest -s --all tests/matrix`.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import product
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest

from tests.support.audio.encoded import (
    HAS_FFMPEG,
    OPTIONS,
    RATE,
    by_ffmpeg,
    encoded,
    source,
    version,
)
from tests.support.audio.every_format import DAMAGE
from tests.support.data.parquet import write_table
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.base.executor import Executor
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

pytestmark = pytest.mark.skipif(not HAS_FFMPEG, reason="needs ffmpeg")

PAGE = Path(__file__).parents[2] / "docs/concepts/nothing-silent.md"
SECONDS = 3.0
KEY = "recording-of-the-cell"
NO_CHECKSUM = ("mp3", "aac", "ac3", "wma", "m4a", "webm", "ts", "flv", "avi", "wav", "w64", "tta")
"""Formats in which a flipped bit of the payload may be another sound that nobody can tell."""


Door = Callable[[bytes, str, Path], np.ndarray]
"""`door(data, name, folder)` returns the samples at their own rate, or raises what names them."""


def resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    if rate == RATE:
        return samples
    places = np.arange(len(samples) * RATE // rate) * rate / RATE
    return np.interp(places, np.arange(len(samples)), samples).astype(np.float32)


def through_file(data: bytes, name: str, folder: Path) -> np.ndarray:
    path = folder / f"{KEY}-{name}"
    path.write_bytes(data)
    info = audio_info(str(path))
    waveform, rate = read_audio(str(path))
    same_length(info.num_samples, len(waveform), rate)
    return resampled(waveform, rate)


def through_bytes(data: bytes, name: str, folder: Path) -> np.ndarray:
    info = audio_info(data)
    waveform, rate = read_audio(data)
    same_length(info.num_samples, len(waveform), rate)
    return resampled(waveform, rate)


def same_length(indexed: int, read: int, rate: int) -> None:
    """Another length than the indexed one is named by whoever reads the sample."""
    if abs(indexed - read) > 0.1 * rate:
        raise AudioError(f"{KEY}: changed_length: {indexed} samples indexed, {read} read")


def of_source(section: dict[str, Any]) -> np.ndarray:
    (opened,) = parse_source(section).lists()
    return of_corpus(*opened)


def of_corpus(*opened: Any) -> np.ndarray:
    """Samples of the only utterance; `opened` are the arguments of `open_list`."""
    corpus = open_list(*opened)
    if corpus.bad:
        raise ListError(f"{corpus.bad}")
    rows = corpus.rows(0)
    utterance = corpus.read(SampleRef(0, 0))
    try:
        waveform, rate = read_audio(utterance.audio, utterance.start, utterance.end)
    except AudioError as error:  # the reader of a loader adds the key
        raise AudioError(f"{utterance.key}: {error}") from None
    same_length(int(rows.num_samples[0]), len(waveform), int(rows.sample_rate[0]))
    return resampled(waveform, rate)


def through_raw_list(data: bytes, name: str, folder: Path) -> np.ndarray:
    path = folder / f"{KEY}-{name}"
    path.write_bytes(data)
    (folder / "raw.list").write_text(RawLine(KEY, str(path), "x").to_json() + "\n")
    return of_corpus(str(folder / "raw.list"), "raw")


def through_segments(data: bytes, name: str, folder: Path) -> np.ndarray:
    """Two halves, as segments of a raw list."""
    path = folder / f"{KEY}-{name}"
    path.write_bytes(data)
    info = audio_info(str(path))
    end = info.num_samples / info.sample_rate
    halves = [(0.0, end / 2), (end / 2, end)]
    lines = [
        RawLine(f"{KEY}{number}", str(path), "x", *half).to_json()
        for number, half in enumerate(halves)
    ]
    (folder / "raw.list").write_text("\n".join(lines) + "\n")
    corpus = open_list(str(folder / "raw.list"), "raw")
    if corpus.bad:
        raise ListError(f"{corpus.bad}")

    parts = []
    for row in range(2):
        utterance = corpus.read(SampleRef(0, row))
        parts.append(read_audio(utterance.audio, utterance.start, utterance.end))
    return resampled(np.concatenate([part for part, _ in parts]), parts[0][1])


def through_packing(data: bytes, name: str, folder: Path) -> np.ndarray:
    path = folder / f"{KEY}-{name}"
    path.write_bytes(data)
    bad = make_shard_list(
        [RawLine(KEY, str(path), "x")],
        folder / "shards",
        str(folder / "shard.list"),
        ShardOptions(per_shard=1),
        Executor(1, "threads"),
    )
    if bad:
        raise ListError(f"{bad}")
    return of_corpus(str(folder / "shard.list"), "shard")


def write_tar(file, data: bytes, name: str) -> None:
    with tarfile.open(fileobj=file, mode="w") as tar:
        members = {f"{KEY}.{name.rpartition('.')[2]}": data, f"{KEY}.txt": b"x"}
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, BytesIO(content))


def through_tar(data: bytes, name: str, folder: Path) -> np.ndarray:
    with open(folder / "a.tar", "wb") as file:
        write_tar(file, data, name)
    (folder / "shard.list").write_text(f"{folder}/a.tar\n")
    return of_corpus(str(folder / "shard.list"), "shard")


def through_gz(data: bytes, name: str, folder: Path) -> np.ndarray:
    tar = BytesIO()
    write_tar(tar, data, name)
    (folder / "a.tar.gz").write_bytes(gzip.compress(tar.getvalue(), 1))
    (folder / "shard.list").write_text(f"{folder}/a.tar.gz\n")
    return of_corpus(str(folder / "shard.list"), "shard")


def through_nemo(data: bytes, name: str, folder: Path) -> np.ndarray:
    """A tarred set of NeMo: samples are named after their members."""
    member = f"{KEY}.{name.rpartition('.')[2]}"
    with tarfile.open(folder / "audio_0.tar", "w") as tar:
        info = tarfile.TarInfo(member)
        info.size = len(data)
        tar.addfile(info, BytesIO(data))

    duration = len(by_ffmpeg(data)) / RATE or SECONDS
    entry = {"audio_filepath": member, "duration": duration, "text": "x", "shard_id": 0}
    (folder / "manifest.json").write_text(json.dumps(entry) + "\n")
    paths = {
        "manifest_filepath": f"{folder}/manifest.json",
        "tarred_audio_filepaths": f"{folder}/audio__OP_0..0_CL_.tar",
    }
    return of_source({"type": "nemo_tarred", **paths})


def through_parquet(data: bytes, name: str, folder: Path) -> np.ndarray:
    audio = {"bytes": data, "path": f"{KEY}-{name}"}
    write_table(folder / "a.parquet", [{"id": KEY, "audio": audio, "text": "x"}], 1)
    return of_source({"type": "parquet", "paths": str(folder)})


def through_check(data: bytes, name: str, folder: Path) -> np.ndarray:
    """Where `check_data.py` names nothing, the list must be read as it is."""
    path = folder / f"{KEY}-{name}"
    path.write_bytes(data)
    (folder / "raw.list").write_text(RawLine(KEY, str(path), "x").to_json() + "\n")
    with opened_for_check(str(folder / "raw.list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading())
    # The source is loud, and some codecs make it louder.
    if named := [finding for finding in report.findings if finding.kind != "clipped"]:
        raise ListError(f"{named}")
    return of_corpus(str(folder / "raw.list"), "raw")


def through_transcribe(data: bytes, name: str, folder: Path) -> np.ndarray:
    """What the search for speech hears of a file object."""
    from wenet_uio.addons.listen.inputs import Input
    from wenet_uio.addons.listen.speech import read_blocks

    recording = BytesIO(data)
    recording.name = f"{KEY}-{name}"
    try:
        read = list(read_blocks(Input(recording).open(), 0))
    except AudioError as error:  # the caller knows the name
        raise AudioError(f"{recording.name}: {error}") from None
    return resampled(np.concatenate([waveform for waveform, _ in read]), read[0][1])


DOORS: dict[str, Door] = {
    "file": through_file,
    "bytes": through_bytes,
    "raw list": through_raw_list,
    "segments": through_segments,
    "packing": through_packing,
    "tar": through_tar,
    "tar.gz": through_gz,
    "nemo": through_nemo,
    "parquet": through_parquet,
    "check": through_check,
    "transcribe": through_transcribe,
}


def is_like(ours: np.ndarray, theirs: np.ndarray, least: float = 0.9) -> bool:
    """Whether two recordings are the same within the tolerance of a codec: 0.15 s of delay and of
    silence at the end, and a correlation.
    """
    if abs(len(ours) - len(theirs)) > 0.15 * RATE or not len(ours):
        return False

    size = 1 << (len(ours) + len(theirs)).bit_length()
    product = np.fft.irfft(np.fft.rfft(ours, size) * np.conj(np.fft.rfft(theirs, size)), size)
    near = np.concatenate((product[: int(0.15 * RATE)], product[-int(0.15 * RATE) :]))
    return near.max() > least * np.sqrt((ours**2).sum() * (theirs**2).sum())


def are_like(ours: np.ndarray, theirs: np.ndarray, name: str, damage: str) -> bool:
    """As `is_like`; the parts of joined files are compared one by one, because decoders take up to
    0.1 s of silence in between for sound.
    """
    least = 0.6 if name == "gsm.wav" else 0.9  # a telephone, compared at another rate
    if damage != "joined":
        return is_like(ours, theirs, least)

    part = int((SECONDS - 0.3) * RATE)
    is_as_long = abs(len(ours) - len(theirs)) < 0.15 * RATE
    return is_as_long and all(
        is_like(ours[piece], theirs[piece], least) for piece in (slice(part), slice(-part, None))
    )


def outcome(door: Door, data: bytes, name: str, damage: str, folder: Path) -> str:
    try:
        ours = door(data, name, folder)
    except (ValueError, OSError) as error:
        return "named" if KEY in str(error) or door is through_bytes else f"unnamed: {error}"

    recording = source(SECONDS).astype(np.float32)
    if damage == "joined":
        recording = np.concatenate((recording, recording))
    if are_like(ours, recording, name, damage):
        return "equal"  # most cells; FFmpeg takes 0.1 s to start

    theirs = by_ffmpeg(data)
    if are_like(ours, theirs, name, damage):
        return "equal"
    if damage in ("payload", "tail", "zeros") and name.endswith(NO_CHECKSUM):
        # Nothing in the file says that these bits are wrong, and decoders differ in what they make
        # of them; the rest must be there.
        return "equal" if abs(len(ours) - len(theirs)) < 0.15 * RATE else "silent"
    return f"silent: {len(ours) / RATE:.2f} s, FFmpeg {len(theirs) / RATE:.2f} s"


def cells(folder: Path, every: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield (container, damage, door, outcome) of every cell, or of the plane."""
    for row, name in enumerate(OPTIONS):
        whole = encoded(name, SECONDS)
        if whole is None:
            continue
        for column, (damage, damaged) in enumerate(DAMAGE.items()):
            data = damaged(whole)
            for number, (title, door) in enumerate(DOORS.items()):
                if every or (row + column + number) % len(DAMAGE) == 0:
                    place = folder / f"{name}-{damage}-{title}"
                    place.mkdir()
                    yield name, damage, title, outcome(door, data, name, damage, place)


def table(results: list[tuple[str, str, str, str]]) -> str:
    """A line for each container and damage, a letter for each door."""
    found = {(name, damage, door): what for name, damage, door, what in results}
    lines = [f"{'':12}" + " ".join(f"{damage:{len(DOORS)}}" for damage in DAMAGE)]
    for name in dict.fromkeys(name for name, *_ in results):
        marks = ("".join(found[name, damage, door][0] for door in DOORS) for damage in DAMAGE)
        lines.append(f"{name:12}" + " ".join(marks))
    return "\n".join(line.rstrip() for line in lines)


def check_cells(results: list[tuple[str, str, str, str]]) -> None:
    assert [cell for cell in results if cell[3] not in ("equal", "named")] == []
    # Recordings without damage are read, except by tars, which know members by their suffixes.
    refused = {
        name: door for name, damage, door, what in results if (damage, what) == ("whole", "named")
    }
    assert set(refused.values()) <= {"tar", "tar.gz", "nemo"}


def test_a_plane_of_the_cells_equals_ffmpegs_decoding_or_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    results = list(cells(tmp_path, every=False))
    check_cells(results)

    names = {name for name in OPTIONS if encoded(name, SECONDS)}
    assert len(names) >= len(OPTIONS) - 2  # an FFmpeg may lack an encoder
    pairs = {(name, damage) for name, damage, _, _ in results}
    assert pairs == set(product(names, DAMAGE))
    assert {(name, door) for name, _, door, _ in results} == set(product(names, DOORS))
    assert {(damage, door) for _, damage, door, _ in results} == set(product(DAMAGE, DOORS))


@pytest.mark.all
def test_every_cell_equals_ffmpegs_decoding_or_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    results = list(cells(tmp_path, every=True))
    print(table(results))
    assert len(results) >= 2000
    check_cells(results)

    # Other versions of FFmpeg write and read other bytes.
    page = PAGE.read_text(encoding="utf-8")
    if f"FFmpeg {version()}" in page:
        assert indent(table(results), "    ") in page


def test_a_check_of_one_list_with_every_damage_names_exactly_the_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    lines, expected = [], set()
    for number, (name, damage) in enumerate(product(OPTIONS, DAMAGE)):
        whole = encoded(name, SECONDS)
        if whole is not None and number % 4 == 0:  # each damage with five containers
            key = f"{name}-{damage}"
            (tmp_path / key).mkdir()
            try:
                through_check(DAMAGE[damage](whole), name, tmp_path / key)
            except (ValueError, OSError):
                expected.add(key)

            path = tmp_path / key / f"{KEY}-{name}"
            lines.append(RawLine(key, str(path), "eins zwei drei"))

    (tmp_path / "raw.list").write_text("".join(line.to_json() + "\n" for line in lines))
    with opened_for_check(str(tmp_path / "raw.list"), "raw") as (corpus, not_indexed):
        report = check_corpus(corpus, not_indexed, Reading())
    usual = ("clipped", "other_rate", "duration", "characters_per_second")
    assert {finding.key for finding in report.findings if finding.kind not in usual} == expected
    assert 0 < len(expected) < len(lines)
