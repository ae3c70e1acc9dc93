"""Hugging Face's parquet files as shards: any table with audio bytes and texts, and one clear line
for any other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch

from tests.support.data.loading import loader
from tests.support.data.parquet import AUDIO, row_of, write_parquet, write_table
from tests.support.data.tars import everything, wav
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage.versions import DriverError, StorageError
from wenet_uio.prepare.list_making import make_raw_list


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def lines(corpora):
    """60 recordings of digits."""
    wavs = sorted((corpora / "fsdd" / "recordings").glob("*.wav"))[::50]
    return [RawLine(path.stem, str(path), "abc"[int(path.name[0]) % 3] * (1 + number % 4))
            for number, path in enumerate(wavs)]  # fmt: skip


def opened(folder, **layout):
    (folder / "data.list").write_text(f"{folder}/*.parquet\n")
    return open_list(str(folder / "data.list"), "shard", Layout(**layout))


def audio(seed=0, path=None):
    return {"bytes": wav(0.3, seed=seed), "path": path}


def test_a_folder_of_the_hub_is_a_source_and_gives_the_batches_of_the_raw_list_on_any_ranks(
    lines, tmp_path
):
    hub = tmp_path / "my set" / "data"
    hub.mkdir(parents=True)
    write_parquet(lines, hub, 10)
    make_raw_list(lines, str(tmp_path / "raw.list"), 10)
    (source,) = parse_source({"type": "parquet", "paths": str(tmp_path / "my set")}).lists()
    assert open_list(*source).digest == open_list(str(tmp_path / "raw.list"), "raw").digest

    def ranks(world, state=None):
        loaders = [
            loader(source.data_list, "shard", rank=rank, world_size=world) for rank in range(world)
        ]
        for each in loaders:
            if state:
                each.load_state_dict(state)
        return loaders

    two = ranks(2)
    iterators = [iter(each) for each in two]
    found = [next(iterator) for _ in range(3) for iterator in iterators]
    three = ranks(3, two[0].state_dict())
    (left,) = {len(each) for each in three}
    iterators = [iter(each) for each in three]
    found += [next(iterator) for _ in range(left) for iterator in iterators]
    expected = {batch.keys: batch for batch in loader(str(tmp_path / "raw.list"), "raw")}
    whole = [batch for batch in found if batch.keys in expected]
    # The last batches of an epoch are shared out among the ranks
    assert len(whole) >= len(expected) - 1
    assert all(torch.equal(batch.feats, expected[batch.keys].feats) for batch in whole)
    assert sorted(key for batch in found for key in batch.keys) == sorted(
        line.key for line in lines
    )


def test_a_set_that_the_package_datasets_wrote_gives_its_rows(lines, tmp_path):
    datasets = pytest.importorskip("datasets")
    audio = [
        {"bytes": Path(line.wav).read_bytes(), "path": Path(line.wav).name} for line in lines[:30]
    ]
    columns = {"audio": audio, "text": [line.text for line in lines[:30]], "n": range(30)}
    made = datasets.Dataset.from_dict(columns).cast_column("audio", datasets.Audio(decode=False))
    made.to_parquet(str(tmp_path / "train-00000-of-00001.parquet"), batch_size=10)
    found = everything(opened(tmp_path))
    assert [(each.key, each.text) for each in found] == [
        (line.key, line.text) for line in lines[:30]
    ]
    assert [bytes(each.audio) for each in found] == [
        Path(line.wav).read_bytes() for line in lines[:30]
    ]
    assert found[3].extra["n"] == 3


def test_copies_that_left_the_cache_are_made_again(lines, tmp_path, cache):
    write_parquet(lines[:20], tmp_path, 10)
    corpus = opened(tmp_path)
    first = [bytes(each.audio) for each in everything(corpus)]
    del corpus
    shutil.rmtree(cache)
    assert [bytes(each.audio) for each in everything(opened(tmp_path))] == first


@pytest.mark.parametrize(
    ("row", "layout", "key", "text"),
    [
        ({"audio": audio(path="d/a.wav"), "text": "one"}, {}, "d-a", "one"),
        ({"audio": audio(path="a.wav"), "file": "/home/u/a.wav", "text": "one"}, {}, "a", "one"),
        (
            {"audio": audio(path="a.mp3"), "id": 7, "transcription": "one", "lang": "en"},
            {},
            "a",
            "one",
        ),
        ({"audio": audio(), "sentence": "one", "id": "x 1"}, {}, "x_1", "one"),
        ({"audio": audio(), "text": "one"}, {}, "t_0_000000", "one"),
        ({"wav": wav(0.3), "txt": "one", "path": "./b/c.flac"}, {}, "b-c", "one"),
        (
            {"audio": audio(), "text": "1", "said": "one"},
            {"text_field": "said"},
            "t_0_000000",
            "one",
        ),
        (
            {"far": wav(0.3), "near": wav(0.5), "text": "one"},
            {"audio_field": "far"},
            "t_0_000000",
            "one",
        ),
        (
            {"audio": audio(path="a.wav"), "text": "grüß\n", "nested": {"x": [1, None]}},
            {},
            "a",
            "grüß\n",
        ),
    ],
)
def test_columns_of_every_habit_are_found_and_the_others_are_kept(row, layout, key, text, tmp_path):
    write_table(tmp_path / "t.parquet", [row], 1, typed=False)
    (found,) = everything(opened(tmp_path, **layout))
    assert (found.key, found.text, len(found.audio)) == (key, text, len(wav(0.3)))
    assert {
        name: row[name] for name in ("lang", "nested") if name in row
    }.items() <= found.extra.items()


def test_a_byte_order_mark_before_a_text_is_no_part_of_it(tmp_path):
    rows = [
        {"audio": audio(), "text": "\ufeffone"},
        {"audio": audio(), "text": "\ufeff\ufeffx\ufeff"},
    ]
    write_table(tmp_path / "a.parquet", rows, 2)
    corpus = opened(tmp_path)
    assert [utterance.text for utterance in everything(corpus)] == ["one", "x\ufeff"]
    assert corpus.rows(0).text_length.tolist() == [3, 2]


def test_equal_base_names_have_their_folders_also_in_different_row_groups(tmp_path):
    rows = [
        {"audio": audio(path="a.wav"), "file": f"{speaker}/a.wav", "text": "x"}
        for speaker in ("s1", "s2")
    ]
    for group in (1, 2):
        write_table(tmp_path / "t.parquet", rows, group)
        (tmp_path / "data.list.idx").unlink(missing_ok=True)
        assert [each.key for each in everything(opened(tmp_path))] == ["s1-a", "s2-a"]


def test_rows_without_audio_or_text_are_named_and_the_others_are_read(tmp_path):
    rows = [
        {"audio": audio(path="a.wav"), "text": "one"},
        {"audio": {"bytes": None, "path": "b.wav"}, "text": "two"},
        {"audio": audio(path="c.wav"), "text": None},
        {"audio": {"bytes": b"no audio", "path": "d.wav"}, "text": "four"},
    ]
    write_table(tmp_path / "t.parquet", rows, 4)
    corpus = opened(tmp_path)
    assert [each.key for each in everything(corpus)] == ["a"]
    assert [key for key, _ in corpus.bad] == ["t_0_000001", "t_0_000002", "d"]
    assert "no audio in its row (columns: audio, text)" in corpus.bad[0][1]
    assert "no text in a column text or txt or sentence" in corpus.bad[1][1]


@pytest.mark.parametrize("said", ["two", None, ""])
def test_the_column_of_the_text_is_that_of_the_whole_table(said, tmp_path):
    rows = [
        {"audio": audio(path=f"{key}.wav"), "text": text, "sentence": "S"}
        for key, text in (("a", "one"), ("b", said))
    ]
    write_table(tmp_path / "t.parquet", rows, 2)
    assert "S" not in [each.text for each in everything(opened(tmp_path))]


@pytest.mark.parametrize(
    "rows", [[{"audio": {"array": [0.0], "sampling_rate": 8000}, "text": "x"}], [{"text": "x"}]]
)
def test_a_table_without_encoded_audio_is_refused_with_its_columns(rows, tmp_path):
    write_table(tmp_path / "t.parquet", rows, 1, typed=False)
    with pytest.raises(
        StorageError,
        match=r"t.parquet: no column holds encoded audio \(its columns: .*text\); audio ",
    ):
        opened(tmp_path)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 1000])
def test_a_damaged_file_is_named(data, tmp_path):
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(StorageError, match="t.parquet: not a parquet file, or damaged"):
        opened(tmp_path)


def test_empty_tables_and_folders_are_named(tmp_path):
    schema = pyarrow.schema([("audio", AUDIO), ("text", pyarrow.string())])
    pyarrow.parquet.write_table(schema.empty_table(), tmp_path / "t.parquet")
    with pytest.raises(ListError, match="no usable utterance"):
        opened(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ListError, match="empty: no files of type parquet in it"):
        parse_source({"type": "parquet", "paths": str(tmp_path / "empty")}).lists()


def test_a_file_that_is_replaced_after_indexing_is_noticed(lines, tmp_path, cache):
    write_parquet(lines[:20], tmp_path, 10)
    opened(tmp_path)
    write_parquet(lines[20:40], tmp_path, 10)
    shutil.rmtree(cache)
    with pytest.raises(ListError, match="changed since it was indexed"):
        everything(opened(tmp_path))


def test_without_pyarrow_the_error_names_the_package(lines, tmp_path, monkeypatch):
    write_parquet(lines[:20], tmp_path, 10)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        DriverError, match=r"parquet: reading parquet needs pyarrow; pip install pyarrow"
    ):
        opened(tmp_path)


def test_importing_the_data_layer_imports_no_package_of_a_container():
    code = (
        "import sys, wenet_uio.dataset, wenet_uio.dataset.open; sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def of_timed_rows(lines, folder, *times, rows_per_group=2):
    """The corpus of a parquet file whose rows have columns of times."""
    rows = [{**row_of(line), **columns} for line, columns in zip(lines, times, strict=False)]
    write_table(folder / "timed.parquet", rows, rows_per_group)
    (folder / "data.list").write_text(f"{folder}/timed.parquet\n")
    return open_list(str(folder / "data.list"), "shard")


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({"start": 0.1, "end": 0.2}, "columns start and end are fields of the samples and cut"),
        ({"end": 0.2, "start": 0.1}, "columns end and start are fields of the samples and cut"),
        ({"start": 0.1}, "column start is a field of the samples and cuts"),
        ({"end": 0.2}, "column end is a field of the samples and cuts"),
        ({"duration": 0.2, "offset": 0.1}, "columns offset and duration are fields of the"),
        ({"begin": 0.1, "end": 0.2}, "columns begin and end are fields of the samples and cut"),
        ({"start_time": "0.1", "end_time": "0.2"}, "columns start_time and end_time are fields"),
        ({"start": 1, "end": 2, "duration": 1}, "columns start, end and duration are fields"),
    ],
)
def test_columns_of_times_cut_nothing_and_that_is_said(lines, tmp_path, caplog, times, told):
    corpus = of_timed_rows(lines, tmp_path, *[times] * 3)
    assert [(sample.start, sample.end) for sample in everything(corpus)] == [(0.0, None)] * 3
    messages = [message for message in caplog.messages if "taken whole" in message]
    (message,) = messages  # once for the two row groups
    assert message.startswith(f"{tmp_path}/timed.parquet: the {told} ")


@pytest.mark.parametrize(
    "times",
    [
        {"start": None, "end": None},
        {"start": float("nan"), "end": float("nan")},
        {"offset": None, "duration": 2.0},
        {"duration": 0.3},
        {"start": "", "end_time": "2026-11-25T10:00:00"},
    ],
)
def test_columns_without_a_time_are_not_told(lines, tmp_path, caplog, times):
    corpus = of_timed_rows(lines, tmp_path, *[times] * 3)
    assert len(everything(corpus)) == 3
    assert "taken whole" not in caplog.text


def test_times_of_a_later_row_only_are_told_too(lines, tmp_path, caplog):
    nothing = {"start": None, "end": None}
    of_timed_rows(lines, tmp_path, nothing, nothing, {"start": 0.1, "end": None})
    assert "the column start is a field of the samples and cuts nothing" in caplog.text
