"""A set of damaged shards: the check names every utterance that is lost, and a fixed list has all
others.
"""

import gzip
import json
import os
from dataclasses import replace

import pytest

from tests.prepare.diagnose.test_check_fix import fix
from tests.support.data.checking import check
from tests.support.data.hostile_tars import header, long_name, member
from tests.support.data.tars import everything, wav
from tests.support.storage.servers import serving
from wenet_uio.dataset.corpus.index import read_index, write_index
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.corpus.shard_index import pages_of, sidecar_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.diagnose.findings import LOSSES
from wenet_uio.prepare.shard_writer import PackedSample, write_shard

SAMPLES = 10


def text_of(key):
    return f"the text of {key}"


def packed(keys):
    return [
        PackedSample(key, text_of(key), wav(0.5, seed=sum(key.encode())), "wav", 4000, 8000)
        for key in keys
    ]


class Shard:
    """The bytes of a shard, to be damaged at the members of a sample."""

    def __init__(self, path):
        self.path, self.data = path, bytearray(path.read_bytes())
        self.rows = read_index(sidecar_of(path)).rows

    def text(self, row):
        return int(self.rows.text_offset[row]) - 512

    def audio(self, row):
        return int(self.rows.audio_offset[row]) - 512

    def end(self):
        return self.audio(SAMPLES - 1) + 512 + int(self.rows.audio_size[SAMPLES - 1])

    def put(self, at, content):
        self.data[at : at + len(content)] = content

    def insert(self, at, content):
        self.data[at:at] = content

    def set_header(self, row, **values):
        """Another header for the audio of a sample."""
        self.put(
            self.audio(row),
            header(f"{self.rows.key(row)}.wav", int(self.rows.audio_size[row]), **values),
        )


def in_size(field):
    return lambda shard: shard.set_header(4, size_field=field)


def of_kind(kind):
    return lambda shard: shard.set_header(4, kind=kind)


def cut(place):
    def change(shard):
        del shard.data[place(shard) :]

    return change


def whole(change):
    def replace_all(shard):
        shard.data = bytearray(change(bytes(shard.data)))

    return replace_all


def zero_tail(shard):
    shard.put(shard.text(6), bytes(len(shard.data) - shard.text(6)))


FOUR, LAST, ALL = (4,), (9,), range(SAMPLES)
DAMAGES = {
    "negative_size": (in_size(b"-0000000512\0"), FOUR),
    "negative_binary_size": (in_size(b"\xff" * 12), FOUR),
    "huge_size": (in_size(b"77777777777\0"), FOUR),
    "huge_binary_size": (in_size(b"\x80" + b"\xff" * 11), FOUR),
    "pax_digits": (
        lambda shard: shard.insert(shard.audio(4), member("x", b"9" * 200_000, b"x")),
        FOUR,
    ),
    "long_names": (lambda shard: shard.insert(shard.audio(4), long_name("other.wav") * 3000), FOUR),
    "sparse": (of_kind(b"S"), FOUR),
    "device": (of_kind(b"3"), FOUR),
    "flipped_header": (lambda shard: shard.put(shard.audio(4) + 3, b"X"), FOUR),
    "not_utf8": (
        lambda shard: shard.put(shard.audio(4), header(b"\xff.wav", int(shard.rows.audio_size[4]))),
        FOUR,
    ),
    "hole_of_zeros": (
        lambda shard: shard.put(shard.text(4), bytes(shard.text(6) - shard.text(4))),
        (4, 5),
    ),
    "hole_of_garbage": (
        lambda shard: shard.put(shard.audio(3), b"\xaa" * (shard.text(5) - shard.audio(3))),
        (3, 4),
    ),
    "garbage_from_the_start": (lambda shard: shard.put(0, b"\xaa" * shard.text(2)), (0, 1)),
    "tail_of_zeros": (zero_tail, (6, 7, 8, 9)),
    "cut_in_padding": (cut(Shard.end), ()),
    "cut_before_the_end_mark": (cut(lambda shard: shard.end() + -shard.end() % 512), ()),
    "cut_in_audio": (cut(lambda shard: shard.end() - 900), LAST),
    "cut_in_a_header": (cut(lambda shard: shard.audio(7) + 100), (7, 8, 9)),
    "cut_after_a_sample": (cut(lambda shard: shard.text(7)), (7, 8, 9)),
    "garbage": (whole(lambda data: b"\xaa" * len(data)), ALL),
    "zeros": (whole(lambda data: bytes(len(data))), ALL),
    "empty": (whole(lambda data: b""), ALL),
    "gzip": (whole(gzip.compress), ALL),
    "equal_names": (
        lambda shard: shard.insert(shard.audio(4), member("equal_names_4.wav", b"again")),
        FOUR,
    ),
}
"""What is done to a shard, and the rows that are lost."""


def write_shards(folder, names):
    """A list of shards with these names, as the packing tool makes them."""
    for name in names:
        write_shard(folder / f"{name}.tar", packed([f"{name}_{row}" for row in range(SAMPLES)]))
    data_list = folder / "data.list"
    data_list.write_text("".join(f"{folder}/{name}.tar\n" for name in names))
    build_index(str(data_list), "shard")
    return data_list


FEW = ("garbage", "tail_of_zeros", "zeros", "sound")


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path, FEW)


def damage(folder):
    """Damage all shards but the sound one; returns the lost keys."""
    lost = {f"missing_{row}" for row in range(SAMPLES)}
    os.remove(folder / "missing.tar")
    for name, (change, rows) in DAMAGES.items():
        shard = Shard(folder / f"{name}.tar")
        change(shard)
        shard.path.write_bytes(shard.data)
        lost |= {f"{name}_{row}" for row in rows}
    return lost


@pytest.mark.parametrize("indexed_again", [False, True])
def test_every_lost_utterance_of_damaged_shards_is_named_and_a_fixed_list_has_the_others(
    tmp_path, indexed_again
):
    folder, shards = tmp_path, write_shards(tmp_path, [*DAMAGES, "missing", "sound"])
    lost = damage(folder)
    if indexed_again:  # the indexes of the damaged shards replace those of the whole ones
        (folder / "present.list").write_text(
            shards.read_text().replace(f"{folder}/missing.tar\n", "")
        )
        build_index(str(folder / "present.list"), "shard")
    report = check(shards, "shard", processes=1, tokenizer=None, filters=False)
    named = {finding.key for finding in report.findings if finding.kind in LOSSES}
    keys = {f"{name}_{row}" for name in [*DAMAGES, "missing", "sound"] for row in range(SAMPLES)}
    assert named & keys == lost
    broken = {finding.key for finding in report.findings if finding.kind == "broken_shard"}
    in_full = {f"{folder}/{name}.tar" for name, (_, rows) in DAMAGES.items() if rows in (ALL, ())}
    assert in_full | {f"{folder}/missing.tar"} <= broken
    assert fix(shards, "shard", folder / "clean.list") == len(keys - lost)
    assert {u.key: u.text for u in everything(open_list(str(folder / "clean.list"), "shard"))} == {
        key: text_of(key) for key in keys - lost
    }
    assert (
        check(folder / "clean.list", "shard", processes=1, tokenizer=None, filters=False).losses
        == 0
    )
    ledger = [json.loads(line) for line in open(folder / "clean.list.left_out.jsonl")]
    assert lost <= {line["key"] for line in ledger}


def test_a_shard_that_was_replaced_within_a_minute_is_named_once_and_refused_by_training(shards):
    folder, others = shards.parent, [f"garbage_{row}" for row in reversed(range(SAMPLES))]
    status = os.stat(folder / "garbage.tar")
    sidecar = sidecar_of(folder / "garbage.tar").read_bytes()
    write_shard(folder / "garbage.tar", packed(others))
    sidecar_of(folder / "garbage.tar").write_bytes(sidecar)
    os.utime(folder / "garbage.tar", (status.st_mtime, status.st_mtime))
    assert os.stat(folder / "garbage.tar").st_size == status.st_size
    report = check(shards, "shard", processes=1, tokenizer=None, filters=False)
    assert [(f.kind, f.key) for f in report.findings] == [
        ("changed_shard", f"{folder}/garbage.tar")
    ]
    with pytest.raises(
        ListError, match=f"garbage.tar: not the shard that was indexed; delete {shards}.idx"
    ):
        everything(open_list(str(shards), "shard"))
    os.remove(f"{shards}.idx")
    found = {u.key: u.text for u in everything(open_list(str(shards), "shard"))}
    assert found == {key: text_of(key) for key in found}
    assert not check(shards, "shard", processes=1, tokenizer=None, filters=False).findings


@pytest.mark.parametrize("mixed", [False, True])
def test_an_index_in_another_order_is_named_and_made_again(shards, mixed):
    checked = shards
    if mixed:
        checked = shards.parent / "mixture.yaml"
        checked.write_text(f"- {{type: shard, data_list: {shards}}}\n")
    sidecar = sidecar_of(shards.parent / "zeros.tar")
    rows, bad, meta = read_index(sidecar)
    write_index([sidecar], replace(rows, audio_offset=rows.audio_offset[::-1]), bad, meta)
    report = check(checked, "shard", processes=1, tokenizer=None, filters=False)
    assert [(f.kind, f.key) for f in report.findings] == [
        ("stale_index", str(shards.parent / "zeros.tar"))
    ]
    assert (
        len(everything(open_list(str(shards), "shard"))) == report.utterances == SAMPLES * len(FEW)
    )


def test_damage_that_an_index_does_not_name_is_named_by_the_check(shards):
    tar = shards.parent / "tail_of_zeros.tar"
    shard = Shard(tar)
    shard.data += bytes(50_000)
    tar.write_bytes(shard.data)
    rows = replace(shard.rows, tar_pages=pages_of(tar))
    write_index([sidecar_of(tar)], rows, [], {"tar_bytes": len(shard.data)})
    build_index(str(shards), "shard")
    assert open_list(str(shards), "shard").bad == []
    report = check(shards, "shard", processes=1, tokenizer=None, filters=False)
    assert [(f.kind, f.key) for f in report.findings] == [("broken_shard", str(tar))]
    assert "bytes of zeros at its end" in report.findings[0].detail


def test_an_index_in_another_order_that_came_with_a_remote_tar_is_made_again(shards, monkeypatch):
    folder = shards.parent
    monkeypatch.setenv("WENET_UIO_CACHE", str(folder / "cache"))
    sidecar = sidecar_of(folder / "zeros.tar")
    rows, bad, meta = read_index(sidecar)
    write_index([sidecar], replace(rows, audio_offset=rows.audio_offset[::-1]), bad, meta)
    with serving(folder) as server:
        remote = folder / "remote.list"
        remote.write_text(f"{server.url}/zeros.tar\n")
        open_list(str(remote), "shard")  # copies the index that lies beside the tar
        report = check(remote, "shard", processes=1, tokenizer=None, filters=False)
        assert [(f.kind, f.key) for f in report.findings] == [
            ("stale_index", f"{server.url}/zeros.tar")
        ]
        assert {u.key: u.text for u in everything(open_list(str(remote), "shard"))} == {
            f"zeros_{row}": text_of(f"zeros_{row}") for row in range(SAMPLES)
        }
