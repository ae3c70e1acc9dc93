"""Damaged bytes of every container of samples are read, or refused by name: no other error, and
none without end.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.support.data.hostile_tars import END, TARS, sample
from tests.support.data.tars import wav
from tests.support.fuzz import damaged
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.columns import read_columns, write_columns
from wenet_uio.dataset.corpus.open_list import build_index, open_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.storage.containers import Part, names_of_parts, unpack
from wenet_uio.dataset.storage.versions import StorageError
from wenet_uio.dataset.types import SampleRef

AUDIO = wav(0.05)


def tar_of(form):
    """A tar of two samples, with a long name, and texts in JSON and beside the audio."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, data in (
            ("a.wav", AUDIO),
            ("a.txt", b"text"),
            (f"{'long' * 30}/é.json", b'{"text": "a", "duration": 0.05}'),
            (f"{'long' * 30}/é.wav", AUDIO),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def sound_tars():
    forms = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    return {name: tar_of(form) for name, form in forms.items()}


def hostile_tars():
    hostile = {name: tar.content() for name, tar in TARS.items()}
    return {name: data for name, data in hostile.items() if 0 < len(data) < 100_000}


def offsets_of(samples, head):
    start = 4 * (len(samples) + 2) + head
    return struct.pack(
        f"<{len(samples) + 2}I",
        len(samples),
        *(start + np.cumsum([0, *map(len, samples)])).tolist(),
    )


def mds():
    """A shard of MDS."""
    columns = {"audio": "bytes", "n": "int", "text": "str", "x": "json", "f": "float32"}
    head = json.dumps(
        {
            "column_names": list(columns),
            "column_encodings": list(columns.values()),
            "column_sizes": [None, 8, None, None, 4],
        }
    ).encode()
    row = struct.pack("<3I", len(AUDIO), 4, 8) + AUDIO + struct.pack("<q", 3) + b"text"
    rows = [row + b'{"a": 1}' + struct.pack("<f", 0.5)] * 3
    return offsets_of(rows, len(head)) + head + b"".join(rows)


def litdata():
    """A chunk of LitData, and the file beside it."""
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {
        "type": "builtins.dict",
        "context": '["audio", "text", "n"]',
        "children_spec": 3 * [leaf],
    }
    config = {"data_format": ["bytes", "str", "int"], "data_spec": json.dumps([1, spec])}
    row = struct.pack("<3I", len(AUDIO), 4, 8) + AUDIO + b"text" + struct.pack("<q", 3)
    return offsets_of([row] * 3, 0) + row * 3, json.dumps({"config": config}).encode()


def arrow_litdata():
    """A chunk of LitData with an Arrow file at its end."""
    table = pyarrow.Table.from_pylist([{"audio": AUDIO, "text": "a"}] * 3)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    content = sink.getvalue().to_pybytes()
    return offsets_of([], 0) + content + struct.pack("<I", len(content)) + b"LDARW01\0"


def parquet():
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"audio": [AUDIO] * 3, "text": ["a"] * 3}), file)
    return file.getvalue()


def index():
    file = io.BytesIO()
    write_columns(file, {"a": np.arange(50), "b": np.ones(7, np.uint8)}, {"type": "raw"})
    return file.getvalue()


def check_container(name, data, beside):
    """Read a container of samples."""
    uri = f"folder/{name.partition(',')[0]}"
    try:
        file = io.BytesIO(data)
        names_of_parts(uri, file)
        unpack(Part(uri, 0), file, lambda _: None, lambda _: beside)
    except StorageError as error:
        assert str(error).startswith(f"{uri}: "), name
        assert "\n" not in str(error), name


def check_containers(times):
    chunk, beside = litdata()
    files = {"a.mds": mds(), "chunk-0-0.bin": chunk, "a.parquet": parquet()}
    for name, data in damaged(files | {"chunk-0-1.bin": arrow_litdata()}, times):
        check_container(name, data, beside)
    for name, data in damaged({"chunk-0-0.bin": beside}, times):
        check_container(name, chunk, data)


def check_tars(folder, tars, times):
    data_list = folder / "data.list"
    data_list.write_text(f"{folder / 'a.tar'}\n{folder / 'sound.tar'}\n")
    (folder / "sound.tar").write_bytes(sample("sound") + END)
    for name, data in damaged(tars, times):
        (folder / "a.tar").write_bytes(data)
        try:
            keys = keys_that_are_read(build_and_open(data_list))
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        assert "sound" in keys, name


def keys_that_are_read(corpus):
    keys = set()
    for shard in range(corpus.num_shards):
        for row in range(corpus.samples[shard]):
            try:
                keys.add(corpus.read(SampleRef(shard, row)).key)
            except ListError as error:
                assert ".tar" in str(error)
    return keys


def check_indexes(folder, times):
    for name, data in damaged({"a.idx": index()}, times):
        (folder / "a.idx").write_bytes(data)
        try:
            read_columns(folder / "a.idx")
        except ValueError as error:
            assert str(error).startswith(f"{folder}/a.idx: "), name
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error


def check_index_of_tar(folder, times):
    """The index beside a tar; that of the list is made again."""
    tar = folder / "a.tar"
    tar.write_bytes(sample("a") + sample("b") + END)
    data_list = folder / "data.list"
    data_list.write_text(f"{tar}\n")
    build_index(str(data_list), "shard")
    place = folder / "a.tar.idx"
    for name, data in damaged({"index": place.read_bytes()}, times):
        place.write_bytes(data)
        try:
            keys_that_are_read(build_and_open(data_list))
        except ListError as error:
            assert str(error).startswith(f"{data_list}: "), name
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error


def list_of_shards(folder):
    """A list of two tars, of one of which a sample has no text."""
    (folder / "a.tar").write_bytes(sample("a") + sample("b") + END)
    (folder / "b.tar").write_bytes(tar_of(tarfile.USTAR_FORMAT))
    data_list = folder / "shards.list"
    data_list.write_text(f"{folder / 'a.tar'}\n{folder / 'b.tar'}\n")
    return data_list


def list_of_files(folder):
    """A raw list of five utterances, two without a key, and a line that is none."""
    (folder / "a.wav").write_bytes(AUDIO)
    named = [f'{{"key": "k{number}", "wav": "a.wav", "txt": "text"}}' for number in range(3)]
    segments = [f'{{"wav": "a.wav", "start": {start}, "txt": "é"}}' for start in (0.01, 0.02)]
    data_list = folder / "raw.list"
    data_list.write_text("\n".join([*named, *segments, '{"wav": "a.wav"}']) + "\n")
    return data_list


def use_corpus(corpus):
    """Plan an epoch and read every sample; return the errors of samples."""
    dataset_conf = DatasetConf(batch_conf=BatchConf(batch_type="static", batch_size=2))
    measure = measure_of(dataset_conf, training=True)
    plan = EpochPlan(corpus, measure, seed=1, epoch=0, division=divide(corpus, 1))
    batches = [plan.batch(number) for number in range(plan.num_batches)]
    assert corpus.contents_digest

    errors = []
    for piece in (piece for batch in batches for piece in batch.pieces):
        for shard, row in zip(piece.shards.tolist(), piece.rows.tolist(), strict=True):
            try:
                corpus.key(SampleRef(shard, row))
                corpus.texts(SampleRef(shard, row))
                corpus.read(SampleRef(shard, row))
            except ListError as error:
                errors.append(error)
    return errors


def check_index_of_list(data_list, data_type, times):
    """An index that is damaged is made again, or whatever fails names it and says what to do."""
    index = Path(f"{data_list}.idx")
    build_index(str(data_list), data_type)
    assert use_corpus(open_list(str(data_list), data_type)) == []
    for name, data in damaged({data_type: index.read_bytes()}, times):
        index.write_bytes(data)
        try:
            errors = use_corpus(open_list(str(data_list), data_type))
        except ValueError as error:
            errors = [error]
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        for error in errors:
            assert str(index) in str(error), (name, error)
            assert "delete" in str(error), (name, error)
            assert "\n" not in str(error), (name, error)


def build_and_open(data_list):
    build_index(str(data_list), "shard")
    return open_list(str(data_list), "shard")


def test_damaged_containers_are_read_or_refused_by_name(tmp_path):
    check_containers(60)
    check_indexes(tmp_path, 100)
    check_index_of_tar(tmp_path, 60)
    check_tars(tmp_path, sound_tars(), 12)


@pytest.mark.parametrize(
    ("make_list", "data_type"), [(list_of_files, "raw"), (list_of_shards, "shard")]
)
def test_a_damaged_index_of_a_list_is_made_again_or_named_with_what_to_do(
    make_list, data_type, tmp_path
):
    check_index_of_list(make_list(tmp_path), data_type, 100)


@pytest.mark.all
@pytest.mark.parametrize(
    ("make_list", "data_type"), [(list_of_files, "raw"), (list_of_shards, "shard")]
)
def test_an_index_of_a_list_with_any_damage_is_made_again_or_named(make_list, data_type, tmp_path):
    check_index_of_list(make_list(tmp_path), data_type, 1000)


@pytest.mark.all
def test_many_damaged_containers_are_read_or_refused_by_name(tmp_path):
    check_containers(1000)
    check_indexes(tmp_path, 1000)
    check_index_of_tar(tmp_path, 300)
    check_tars(tmp_path, sound_tars() | hostile_tars(), 10)
