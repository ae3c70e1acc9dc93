from __future__ import annotations

from pathlib import Path

import pytest

from tests.dataset.support.parquet import write_table
from tests.dataset.support.tars import wav
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.prepare.embedded import read_parquet, write_audio


def test_audio_is_written_inside_its_folder_whatever_the_keys_are(tmp_path):
    keys = ["../../up", "/etc/x", "a/b", "a%2Fb"]
    audio = [{"bytes": wav(0.1, seed=seed), "path": "a.wav"} for seed in range(len(keys))]
    rows = [{"audio": each, "text": "x", "id": key} for each, key in zip(audio, keys, strict=True)]
    write_table(tmp_path / "t.parquet", rows, 3)
    lines = read_parquet(str(tmp_path / "t.parquet"))
    assert [line.key for line in lines] == keys
    written = write_audio([(line.wav, line.key) for line in lines], tmp_path / "audio")
    assert {Path(path).parent for path in written.values()} == {tmp_path / "audio"}
    assert [Path(written[line.wav]).read_bytes() for line in lines] == [row["audio"]["bytes"] for row in rows]


def test_a_row_with_a_path_in_place_of_audio_is_named(tmp_path):
    write_table(tmp_path / "t.parquet", [{"audio": {"bytes": None, "path": "a.wav"}, "text": "x"}], 1)
    (line,) = read_parquet(str(tmp_path / "t.parquet"))
    with pytest.raises(ListError, match="t.parquet: a: no audio in its row, only a path; save the set with its audio"):
        write_audio([(line.wav, line.key)], tmp_path / "audio")
