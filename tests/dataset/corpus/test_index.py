import os

import numpy as np

from wenet_uio.dataset.corpus.index import COLUMNS, Entry, read_index, rows_of, write_index
from wenet_uio.dataset.corpus.open_list import ensure_index, index_of

ENTRIES = [
    Entry("a", 8000, 16000, 3, 0, 44),
    Entry("büro", 4000, 8000, 5, 44, 60, 104, 5),
    Entry("c", 1, 8000, 0, 0, 1),
]


def test_an_index_takes_52_bytes_a_sample():
    assert sum(np.dtype(dtype).itemsize for dtype in COLUMNS.values()) == 52


def test_a_slice_of_rows_keeps_keys_and_lengths():
    rows = rows_of(ENTRIES).slice(1, 3)
    assert [rows.key(row) for row in range(len(rows))] == ["büro", "c"]
    assert rows.seconds.tolist() == [0.5, 1 / 8000]
    assert rows.slice(1, 2).key(0) == "c"


def test_the_digest_of_rows_covers_all_that_a_plan_depends_on_and_no_positions():
    digest = rows_of(ENTRIES).digest()
    first, *rest = ENTRIES
    changes = {"key": "b", "num_samples": 9, "sample_rate": 8000, "text_length": 4}
    assert digest not in [
        rows_of([first._replace(**{name: value}), *rest]).digest()
        for name, value in changes.items()
    ]
    assert (
        digest
        == rows_of(
            [first._replace(audio_offset=7, audio_size=7, text_offset=7, text_size=7), *rest]
        ).digest()
    )


def test_the_index_of_a_shard_is_read_as_it_was_written(tmp_path):
    write_index([tmp_path / "x.idx"], rows_of(ENTRIES), [("d", "no audio")], {"tar_bytes": 10})
    for one_of_many in (False, True):
        rows, bad, meta = read_index(tmp_path / "x.idx", one_of_many=one_of_many)
        assert rows.digest() == rows_of(ENTRIES).digest()
        assert [rows.key(row) for row in range(3)] == ["a", "büro", "c"]
        assert (bad, meta) == ([("d", "no audio")], {"tar_bytes": 10})


def test_a_list_with_a_new_time_and_the_same_content_is_not_indexed_again(make_lists):
    for kind, path in make_lists(3).items():
        before = index_of(path).stat().st_mtime_ns
        os.utime(path, (0, 0))
        ensure_index(path, kind)
        assert index_of(path).stat().st_mtime_ns == before


def test_a_key_of_an_index_of_another_tool_is_given_as_one_word():
    rows = rows_of([Entry(key, 1, 16000, 0, 0, 1) for key in ("my a", "b\nevil words", "c")])
    assert [rows.key(row) for row in range(3)] == ["my_a", "b_evil_words", "c"]
