import numpy as np
import pytest

from wenet_uio.base.files import written_aside
from wenet_uio.dataset.corpus.columns import find_columns, read_columns, write_columns


def test_columns_are_read_as_they_were_written(tmp_path):
    columns = {
        "a": np.arange(5, dtype=np.uint64),
        "empty": np.empty(0, np.uint32),
        "b": np.linspace(0, 1, 7),
    }
    with written_aside(tmp_path / "x.idx") as file:
        write_columns(file, columns, {"name": "läst"})
    read, meta = read_columns(tmp_path / "x.idx")
    assert meta == {"name": "läst"}
    assert {name: array.tolist() for name, array in read.items()} == {
        n: a.tolist() for n, a in columns.items()
    }
    assert all(read[name].dtype == columns[name].dtype for name in columns)


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "x.idx"
    with written_aside(path) as file:
        write_columns(file, {"a": np.arange(100)}, {})
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"cut short .* delete it"):
        read_columns(path)


@pytest.mark.parametrize("kept", [0, 3, 12, 16, 40, 100])
def test_a_file_cut_inside_its_header_is_refused_by_name(tmp_path, kept):
    path = tmp_path / "x.idx"
    with written_aside(path) as file:
        write_columns(file, {"a": np.arange(100)}, {"name": "x" * 100})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(
        ValueError, match=r"x\.idx: (cut short inside its header|not an index).*delete it"
    ):
        read_columns(path)
    assert find_columns(path) is None


@pytest.mark.parametrize(
    ("found", "other"),
    [
        (b'"<i8"', b'"<?8"'),
        (b"100,", b"-10,"),
        (b"100,", b"1e2,"),
        (b'"meta"', b'"meat"'),
        (b"{", b"\xff"),
    ],
)
def test_a_file_with_a_damaged_header_is_refused_by_name(tmp_path, found, other):
    path = tmp_path / "x.idx"
    with written_aside(path) as file:
        write_columns(file, {"a": np.arange(100)}, {})
    path.write_bytes(path.read_bytes().replace(found, other, 1))
    with pytest.raises(ValueError, match=r"x\.idx: its header is damaged .* delete it"):
        read_columns(path)
    assert find_columns(path) is None


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "x.idx").write_bytes(b"RIFF" + bytes(100))
    with pytest.raises(ValueError, match="no index|not an index"):
        read_columns(tmp_path / "x.idx")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(RuntimeError), written_aside(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert path.read_text() == "old"
