import pytest

from tests.dataset.support.tars import wav
from wenet_uio.audio.read import AudioError, AudioInfo
from wenet_uio.dataset.corpus.index import NOMINAL_RATE, Entry
from wenet_uio.dataset.corpus.raw_index import entry_of, has_remote_audio
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(0.5, rate=8000))
    return str(tmp_path / "a.wav")


def test_the_length_of_a_line_comes_from_the_header_of_its_audio(path):
    assert entry_of(RawLine("a", path, " hi "), "x.list", 7, 50) == Entry("a", 4000, 8000, 2, 7, 50)
    assert entry_of(RawLine("a", path, "hi", 0.1, 0.3), "x.list", 7, 50).num_samples == 1600
    assert entry_of(RawLine("a", path, "hi", 0.4, 9.0), "x.list", 7, 50).num_samples == 800


def test_a_line_that_states_a_duration_needs_no_audio():
    stated = {"duration": 1.5}
    assert entry_of(RawLine("a", "none.wav", "", extra=stated), "x.list", 0, 1)[1:3] == (24000, NOMINAL_RATE)
    stated["sampling_rate"] = 8000
    assert entry_of(RawLine("a", "none.wav", "", extra=stated), "x.list", 0, 1)[1:3] == (12000, 8000)


@pytest.mark.parametrize(("start", "end"), [(0.6, None), (0.3, 0.2), (0.2, 0.2)])
def test_a_segment_without_audio_is_refused(path, start, end):
    assert AudioInfo(4000, 8000, 1).samples_between(start, end) == 0
    with pytest.raises(AudioError, match=f"no audio between {start} s and {end} s"):
        entry_of(RawLine("a", path, "hi", start, end), "x.list", 0, 1)


def test_a_list_with_one_remote_file_is_remote(tmp_path):
    lines = ['{"wav": "a.wav", "txt": "a://b"}', "{broken s3://b", '{"wav": "file:///c.wav", "txt": ""}']
    for more, expected in (([], False), (['{"wav": "s3://b/c.wav", "txt": ""}'], True)):
        (tmp_path / "x.list").write_text("\n".join([*lines, *more]))
        assert has_remote_audio(str(tmp_path / "x.list"), DEFAULT_LAYOUT) == expected
