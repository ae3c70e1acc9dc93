import json

import numpy as np
import pytest
import soundfile

from wenet_uio.prepare.diagnose.list_audio import audio_reader


@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_audio_is_found_by_key(kind, make_lists, make_utterances):
    audio = audio_reader(make_lists(3)[kind], kind)
    for line in make_utterances(3):
        waveform, rate = audio(line.key)
        expected, expected_rate = soundfile.read(line.wav, dtype="int16")
        assert rate == expected_rate
        np.testing.assert_array_equal(waveform, expected)
    assert audio("another key") is None


def test_a_segment_is_cut_out(make_utterances, tmp_path):
    (line,) = make_utterances(1)
    segment = {"key": "part", "wav": line.wav, "txt": "a", "start": 0.1, "end": 0.2}
    (tmp_path / "list").write_text(json.dumps(segment) + "\n")
    waveform, rate = audio_reader(str(tmp_path / "list"), "raw")("part")
    assert len(waveform) == pytest.approx(0.1 * rate, abs=1)
