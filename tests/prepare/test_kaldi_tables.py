from __future__ import annotations

import pytest

from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.prepare.kaldi_tables import read_audio_lines, recording_names


@pytest.fixture
def tables(tmp_path):
    def write(segments: str) -> tuple[str, str]:
        (tmp_path / "wav.scp").write_text("call /wav/call.wav\n")
        (tmp_path / "segments").write_text(segments)
        return str(tmp_path / "wav.scp"), str(tmp_path / "segments")

    return write


def test_an_end_of_minus_one_is_the_end_of_the_recording_as_in_kaldi(tables):
    lines = read_audio_lines(*tables("a call 0 -1\nb call 1.5 -1\nc call 0.5 1.5\n"))
    assert [(line.start, line.end) for line in lines] == [(0.0, None), (1.5, None), (0.5, 1.5)]


@pytest.mark.parametrize("times", ["2 1", "1 1", "-1 2", "0 -2", "nan -1"])
def test_times_out_of_order_are_named(tables, times):
    with pytest.raises(ListError, match="segments: a: starts at"):
        read_audio_lines(*tables(f"a call {times}\n"))


def test_recordings_have_names_that_differ_and_have_no_spaces():
    names = recording_names(["/x/a.wav", "/y/a.wav", "/x/my call.wav", "/x/a.wav"])
    assert names == {"/x/a.wav": "a", "/y/a.wav": "a-2", "/x/my call.wav": "my_call"}
