"""AudioReader: the samples of `read_audio`, in one decoding where a format has no other way."""

import numpy as np
import pytest
import soundfile

from tests.support.audio.encoded import HAS_FFMPEG, OPTIONS, RATE, encoded
from wenet_uio.audio import read
from wenet_uio.audio.decoders import AudioError, AvDecoder
from wenet_uio.audio.read import AudioReader, read_audio

ORDERS = {
    "in order": [(0.0, 1.0), (1.0, 2.5), (2.5, 6.0)],
    "overlapping": [(0.0, 2.0), (1.5, 3.0), (1.5, 1.7), (2.9, 2.95), (2.95, None)],
    "with gaps": [(0.3, 0.4), (2.0, 2.1), (5.5, None)],
    "backwards": [(4.0, 5.0), (2.0, 3.0), (0.0, None), (0.0, 0.1)],
    "the same": [(1.0, 2.0)] * 3,
}


@pytest.mark.third
@pytest.mark.skipif(not HAS_FFMPEG, reason="needs ffmpeg")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OPTIONS)
def test_segments_in_any_order_are_those_of_read_audio(name, order, tmp_path):
    data = encoded(name)
    if data is None:
        pytest.skip(f"this ffmpeg cannot write {name}")
    path = tmp_path / name
    path.write_bytes(data)
    for source in (str(path), data):
        reader = AudioReader(source)
        for start, end in ORDERS[order]:
            expected, rate = read_audio(source, start, end)
            found, found_rate = reader.read(start, end, 0)
            assert (found_rate, found.dtype) == (rate, expected.dtype)
            np.testing.assert_array_equal(found, expected)
        reader.close()


@pytest.mark.skipif(not HAS_FFMPEG, reason="needs ffmpeg")
@pytest.mark.parametrize(("order", "decodings"), [("overlapping", 1), ("backwards", 3)])
def test_a_format_without_places_is_decoded_once_unless_a_segment_lies_before(
    monkeypatch, order, decodings
):
    opened = []

    class Counted(AvDecoder):
        def __init__(self, *arguments):
            opened.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(read, "AvDecoder", Counted)
    data = encoded("a.m4a")
    assert data is not None
    reader = AudioReader(data)
    for start, end in ORDERS[order]:
        reader.read(start, end, 0)
    assert len(opened) == decodings


@pytest.mark.skipif(not HAS_FFMPEG, reason="needs ffmpeg")
def test_the_samples_of_one_segment_are_kept():
    data = encoded("a.m4a", 30.0)
    assert data is not None
    reader = AudioReader(data)
    for start in range(28):
        reader.read(start, start + 2.0, 0)
        decoder = reader._decoder
        assert decoder is not None
        assert sum(frame.samples.shape[1] for frame in decoder._kept) < 2 * RATE + 3 * 1024


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_all_channels_are_the_columns_of_what_is_read(tmp_path, subtype):
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (4000, 3))
    path = str(tmp_path / "three.wav")
    soundfile.write(path, samples, 8000, subtype=subtype)
    for start, end in ((0.0, None), (0.1, 0.3)):
        columns = [read_audio(path, start, end, channel)[0] for channel in range(3)]
        found, _ = AudioReader(path).read(start, end, channel=None)
        np.testing.assert_array_equal(found, np.stack(columns, axis=1))


def test_errors_have_the_path_and_the_reader_goes_on_after_them(tmp_path):
    path = str(tmp_path / "a.wav")
    soundfile.write(path, np.full(8000, 0.5), 8000)
    reader = AudioReader(path)
    for segment, why in (
        ((0.0, None, 1), r"a\.wav: channel 1 \(counted from 0\) requested"),
        ((2.0, 3.0, 0), r"a\.wav: no samples between 2\.0 s and 3\.0 s"),
    ):
        with pytest.raises(AudioError, match=why):
            reader.read(*segment)
    assert len(reader.read(0.0, 0.5, 0)[0]) == 4000
    with pytest.raises(AudioError, match=r"b\.wav: No such file"):
        AudioReader(str(tmp_path / "b.wav")).read(0.0, None, 0)
    np.save(tmp_path / "a.npy", np.zeros((5, 80), np.float32))
    with pytest.raises(AudioError, match=r"a\.npy: stored features \(5 frames of 80\)"):
        AudioReader(str(tmp_path / "a.npy")).read(0.0, None, None)
