"""Shards of MosaicML's streaming data sets and chunks of LitData give the batches of the raw
list.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch

from tests.support.data.loading import loader, same
from tests.support.data.tars import everything, wav
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine, read_shard_list
from wenet_uio.dataset.storage.versions import StorageError
from wenet_uio.prepare.list_making import make_raw_list

GROUP = 12
"""Samples of a shard."""
COLUMNS = {
    "audio": "bytes",
    "sentence": "str",
    "path": "str",
    "n": "int",
    "x": "json",
    "f": "float32",
    "p": "pkl",
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def lines(corpora):
    """60 recordings of digits."""
    wavs = sorted((corpora / "fsdd" / "recordings").glob("*.wav"))[::50]
    return [RawLine(path.stem, str(path), "abc"[int(path.name[0]) % 3]) for path in wavs]


def sample_of(line):
    values = {
        "audio": Path(line.wav).read_bytes(),
        "sentence": line.text,
        "path": Path(line.wav).name,
    }
    return values | {"n": -3, "x": {"a": 1}, "f": 0.5}


def write_by_its_package(kind, lines, folder):
    if kind == "mds":
        writer = pytest.importorskip("streaming.base.format.mds.writer").MDSWriter
        with writer(
            columns=COLUMNS, out=str(folder), size_limit=1 << 16, progress_bar=False
        ) as out:
            for line in lines:
                out.write(sample_of(line) | {"p": [1]})
        return
    writer = pytest.importorskip("litdata.streaming.writer").BinaryWriter(
        str(folder), chunk_size=GROUP
    )
    for number, line in enumerate(lines):
        writer[number] = {name: value for name, value in sample_of(line).items() if name != "x"}
    writer.done()
    writer.merge()


def offsets_of(samples, head):
    start = 4 * (len(samples) + 2) + head
    return struct.pack(
        f"<{len(samples) + 2}I",
        len(samples),
        *(start + np.cumsum([0, *map(len, samples)])).tolist(),
    )


def write_mds(lines, folder):
    sizes = {"n": 8, "f": 4}
    config = {
        "column_encodings": list(COLUMNS.values()),
        "column_names": list(COLUMNS),
        "format": "mds",
    }
    head = json.dumps(config | {"column_sizes": [sizes.get(name) for name in COLUMNS]}).encode()
    for number, first in enumerate(range(0, len(lines), GROUP)):
        samples = []
        for line in lines[first : first + GROUP]:
            values = sample_of(line)
            packed = [
                values["audio"],
                values["sentence"].encode(),
                values["path"].encode(),
                struct.pack("<q", -3),
            ]
            packed += [
                json.dumps(values["x"]).encode(),
                struct.pack("<f", 0.5),
                b"\x80\x04cos\nsystem\n.",
            ]
            lengths = [
                len(each) for each, name in zip(packed, COLUMNS, strict=True) if name not in sizes
            ]
            samples.append(struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(packed))
        (folder / f"shard.{number:05d}.mds").write_bytes(
            offsets_of(samples, len(head)) + head + b"".join(samples)
        )


FORMATS = {
    "audio": "bytes",
    "sentence": "str",
    "path": "str",
    "n": "int",
    "f": "float",
    "p": "pickle",
}


def write_litdata(lines, folder, *, arrow=False, **config):
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {
        "type": "builtins.dict",
        "context": json.dumps(list(FORMATS)),
        "children_spec": [leaf] * len(FORMATS),
    }
    config = {
        "data_format": list(FORMATS.values()),
        "data_spec": json.dumps([1, spec]),
        "compression": None,
    } | config
    (folder / "index.json").write_text(json.dumps({"chunks": [], "config": config}))
    for number, first in enumerate(range(0, len(lines), GROUP)):
        values = [
            sample_of(line) | {"p": b"\x80\x04cos\nsystem\n."}
            for line in lines[first : first + GROUP]
        ]
        if arrow:
            table = pyarrow.Table.from_pylist(
                [{name: each[name] for name in FORMATS if name != "p"} for each in values]
            )
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_file(sink, table.schema) as file:
                file.write_table(table)
            head = [len(values), *[4 * (len(values) + 2)] * (len(values) + 1)]
            rows = sink.getvalue().to_pybytes()
            data = (
                struct.pack(f"<{len(head)}I", *head)
                + rows
                + struct.pack("<I", len(rows))
                + b"LDARW01\0"
            )
        else:
            samples = [item_of(each) for each in values]
            data = offsets_of(samples, 0) + b"".join(samples)
        (folder / f"chunk-0-{number}.bin").write_bytes(data)


def item_of(values):
    packed = [
        values["audio"],
        values["sentence"].encode(),
        values["path"].encode(),
        struct.pack("<q", -3),
    ]
    packed += [struct.pack("<d", 0.5), values["p"]]
    return struct.pack(f"<{len(packed)}I", *map(len, packed)) + b"".join(packed)


WRITERS = {
    "mds": write_mds,
    "litdata": write_litdata,
    "litdata, arrow": lambda lines, folder: write_litdata(lines, folder, arrow=True),
    "mds, by its package": lambda lines, folder: write_by_its_package("mds", lines, folder),
    "litdata, by its package": lambda lines, folder: write_by_its_package("litdata", lines, folder),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_is_a_source_and_gives_the_batches_of_the_raw_list_on_any_ranks(
    writer, lines, tmp_path
):
    folder = tmp_path / "my set"
    folder.mkdir()
    WRITERS[writer](lines, folder)
    (source,) = parse_source({"type": writer.partition(",")[0], "paths": str(folder)}).lists()
    corpus = open_list(*source)
    assert corpus.bad == []
    make_raw_list(lines, str(tmp_path / "raw.list"), int(corpus.samples[0]))
    # Shards of MDS have a size in bytes
    if "package" not in writer or writer.startswith("litdata"):
        assert corpus.digest == open_list(str(tmp_path / "raw.list"), "raw").digest
    # Without the pickle, which is not opened
    fields = {
        "n": -3,
        "f": 0.5,
        "path": Path(lines[0].wav).name,
    }
    assert everything(corpus)[0].extra == fields | (
        {"x": {"a": 1}} if writer.startswith("mds") else {}
    )

    ours, expected = (
        loader(source.data_list, "shard"),
        list(loader(str(tmp_path / "raw.list"), "raw")),
    )
    assert all(same(left, right) for left, right in zip(ours, expected, strict=True))
    ranks = [loader(source.data_list, "shard", rank=rank, world_size=2) for rank in range(2)]
    iterators = [iter(each) for each in ranks]
    found = [next(iterator) for _ in range(2) for iterator in iterators]
    three = [loader(source.data_list, "shard", rank=rank, world_size=3) for rank in range(3)]
    for each in three:
        each.load_state_dict(ranks[0].state_dict())
    found += [batch for each in three for _, batch in zip(range(len(each)), each, strict=False)]
    assert sorted(key for batch in found for key in batch.keys) == sorted(
        line.key for line in lines
    )
    by_keys = {batch.keys: batch for batch in expected}
    assert (
        sum(
            torch.equal(by_keys[batch.keys].feats, batch.feats)
            for batch in found
            if batch.keys in by_keys
        )
        > 2
    )


@pytest.mark.parametrize("writer", ["mds", "litdata"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_damaged_shards_are_named(writer, damage, tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(0.3))
    WRITERS[writer]([RawLine("a", str(tmp_path / "a.wav"), "a")], tmp_path)
    (path,) = (each for each in tmp_path.iterdir() if each.suffix in (".mds", ".bin"))
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": data[:-9], "noise": b"\x01\x02\x03" * 500}[damage])
    (tmp_path / "data.list").write_text(f"{path}\n")
    with pytest.raises(StorageError, match=f"{path.name}: (not a (shard|chunk)|a sample|an item)"):
        open_list(str(tmp_path / "data.list"), "shard")


def test_a_chunk_of_many_samples_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.GROUP", 300)
    (tmp_path / "a.wav").write_bytes(wav(0.3))
    write_litdata([RawLine(f"a{n}", str(tmp_path / "a.wav"), "a") for n in range(300)], tmp_path)
    (source,) = parse_source({"type": "litdata", "paths": str(tmp_path)}).lists()
    assert open_list(*source).num_samples == 300


def test_numbers_order_chunks_and_compressed_ones_are_refused_by_name(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(0.3))
    write_litdata(
        [RawLine(f"a{n}", str(tmp_path / "a.wav"), "a") for n in range(GROUP * 11)], tmp_path
    )
    (source,) = parse_source({"type": "litdata", "paths": str(tmp_path)}).lists()
    assert [Path(shard).parent.name for shard in read_shard_list(source.data_list)][-2:] == [
        "chunk-0-9.bin",
        "chunk-0-10.bin",
    ]
    write_litdata([RawLine("a", str(tmp_path / "a.wav"), "a")], tmp_path, compression="zstd")
    with pytest.raises(
        StorageError, match="chunk-0-0.bin: compressed chunks are not read; write them again"
    ):
        open_list(source.data_list, "shard")
    (tmp_path / "b.list").write_text(f"{tmp_path}/shard.00000.mds.zstd\n")
    with pytest.raises(
        StorageError,
        match="shard.00000.mds.zstd: compressed shards of MDS are not read; unpack them",
    ):
        open_list(str(tmp_path / "b.list"), "shard")
