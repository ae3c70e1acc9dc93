"""Lists with one fault of every kind."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.data.checking import write
from tests.support.data.packing import pack
from wenet_uio.dataset.corpus.index import write_index
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.shard_job import Storing, encode_sample
from wenet_uio.prepare.shard_writer import write_shard
from wenet_uio.prepare.sharding import ShardOptions


def a_call(noise: np.ndarray) -> np.ndarray:
    """(samples, 2): one channel sounds in the first half, the other in the second."""
    is_first = np.arange(len(noise)) < len(noise) // 3
    return noise[:, None] * np.stack((is_first, ~is_first), axis=1)


@pytest.fixture
def planted(make_utterances, tmp_path):
    """(lines of 40 good utterances and of the faulty utterances that can be packed, keys by kind of
    fault).
    """
    lines = make_utterances(40)
    noise = np.random.default_rng(0).normal(0, 0.1, 8000)
    flac = tmp_path / "cut.flac"
    soundfile.write(flac, noise, 16000)
    flac.write_bytes(flac.read_bytes()[:6000])
    faulty = {
        "unreadable": RawLine("unreadable", str(flac), "ab"),
        "empty_text": RawLine("empty_text", write(tmp_path / "empty.wav", noise), " "),
        "silent": RawLine("silent", write(tmp_path / "silent.wav", noise * 1e-3), "ab"),
        "clipped": RawLine(
            "clipped", write(tmp_path / "clipped.wav", (noise * 20).clip(-1, 1)), "ab"
        ),
        "other_channel": RawLine(
            "other_channel", write(tmp_path / "call.wav", a_call(noise)), "abc"
        ),
        "other_rate": RawLine("other_rate", write(tmp_path / "rate.wav", noise, 8000), "abc"),
        "duration": RawLine(
            "duration", write(tmp_path / "long.wav", np.tile(noise, 120)), "abc" * 40
        ),
        "characters_per_second": RawLine(
            "characters_per_second", write(tmp_path / "fast.wav", noise), "abc" * 100
        ),
        "space_to_unknown": RawLine(
            "space_to_unknown", write(tmp_path / "space.wav", noise), "a b"
        ),
        "unknown_unit": RawLine("unknown_unit", write(tmp_path / "unit.wav", noise), "a你"),
        "duplicate_key": RawLine(lines[3].key, write(tmp_path / "again.wav", noise), "ab"),
    }
    found = {kind: [line.key] for kind, line in faulty.items()}
    return lines + list(faulty.values()), found


@pytest.fixture
def faulty_raw_list(planted, tmp_path):
    """(raw list, keys by kind of fault)."""
    lines, expected = planted
    raw = tmp_path / "raw.list"
    make_raw_list(lines, str(raw))
    (tmp_path / "garbage.wav").write_bytes(b"garbage" * 100)
    with open(raw, "a") as file:
        file.write("no JSON\n")
        file.write('{"key": "no_audio", "wav": "nowhere.wav", "txt": "a"}\n')
        file.write('{"key": "no_text", "wav": "fast.wav"}\n')
        file.write('{"key": "garbage", "wav": "garbage.wav", "txt": "a"}\n')
        file.write('{"key": "changed_length", "wav": "fast.wav", "txt": "a", "duration": 0.8}\n')
    bad = [
        "no_audio",
        "garbage",
        *(f"{raw}:{number}" for number in (len(lines) + 1, len(lines) + 3)),
    ]
    return raw, {**expected, "not_indexed": sorted(bad), "changed_length": ["changed_length"]}


@pytest.fixture
def faulty_shard_list(planted, tmp_path):
    """(shard list, keys by kind of fault)."""
    lines, expected = planted
    shards = tmp_path / "shards"
    pack(lines, shards, str(tmp_path / "shard.list"), ShardOptions(per_shard=20))
    names = (tmp_path / "shard.list").read_text().splitlines()
    with tarfile.open(shards / "unpaired.tar", "w") as tar:
        members = {"only_text.txt": b"a", "only_audio.wav": Path(lines[0].wav).read_bytes()}
        # Is not packed
        members |= {
            "unreadable.txt": b"ab",
            "unreadable.flac": (tmp_path / "cut.flac").read_bytes(),
        }
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    write_shard(
        shards / "cut.tar",
        [encode_sample(replace(lines[0], key=key), Storing()) for key in ("cut0", "cut1")],
    )
    os.truncate(shards / "cut.tar", os.path.getsize(shards / "cut.tar") - 3000)
    os.remove(f"{shards}/cut.tar.idx")
    stale = [encode_sample(replace(lines[0], key=key), Storing()) for key in ("stale0", "stale1")]
    rows = write_shard(shards / "stale.tar", stale).rows
    swapped = replace(rows, audio_offset=rows.audio_offset[::-1])
    write_index(
        [shards / "stale.tar.idx"],
        swapped,
        [],
        {"tar_bytes": (shards / "stale.tar").stat().st_size},
    )
    (shards / "noise.tar").write_bytes(np.random.default_rng(0).bytes(20_000))
    (shards / "nothing.tar").write_bytes(b"")
    tarfile.open(shards / "hollow.tar", "w").close()
    broken = [str(shards / f"{name}.tar") for name in ("missing", "noise", "nothing")]
    whole = [str(shards / f"{name}.tar") for name in ("cut", "unpaired", "hollow", "stale")]
    (tmp_path / "shard.list").write_text("\n".join([*names, *broken, *whole]))
    found = {
        "not_indexed": ["cut1", "cut1.wav", "only_audio", "only_text"],
        "empty_shard": [whole[2]],
        "stale_index": [whole[3]],
    }
    return tmp_path / "shard.list", {
        **expected,
        **found,
        "broken_shard": sorted([*broken, whole[0]]),
    }
