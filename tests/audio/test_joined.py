"""Length and content of mp3, Ogg and FLAC: what is there counts, not what a header says.

Files are made by FFmpeg, and compared with the recording that was encoded, or with FFmpeg's
decoding.
"""

import numpy as np
import pytest

from tests.support.audio.encoded import HAS_FFMPEG, OPTIONS, RATE, by_ffmpeg, encoded, source
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_audio

pytestmark = pytest.mark.skipif(not HAS_FFMPEG, reason="needs ffmpeg")
LOSSLESS = ("a.flac", "a.wv", "a.tta", "a.w64", "rf64.wav", "plain.wav")
ID3 = b"ID3\x03\0\0\0\0\0\x0a" + bytes(10)


@pytest.fixture
def audio():
    """A function that gives the bytes of a recording of some seconds in a format."""

    def made(name, seconds=6.0, seed=0):
        data = encoded(name, seconds, seed)
        if data is None:
            pytest.skip(f"this ffmpeg cannot write {name}")
        return data

    return made


@pytest.mark.third
@pytest.mark.parametrize("name", OPTIONS)
def test_the_length_is_that_of_the_source_from_a_file_and_from_bytes(audio, name, tmp_path):
    data = audio(name)
    path = tmp_path / name
    path.write_bytes(data)
    for door in (str(path), data):
        info = audio_info(door)
        waveform, rate = read_audio(door)
        assert len(waveform) == info.num_samples
        assert abs(len(waveform) / rate - 6.0) < 0.12
        if name in LOSSLESS:
            assert abs(waveform - source()).max() < 2


@pytest.mark.parametrize("first", ["xing.mp3", "vbr.mp3", "cbr.mp3"])
@pytest.mark.parametrize("second", ["xing.mp3", "vbr.mp3", "cbr.mp3"])
def test_joined_mp3_is_read_whole(audio, first, second):
    data = audio(first, 6.0) + audio(second, 3.0, 1)
    info = audio_info(data)
    waveform, _ = read_audio(data)
    assert len(waveform) == info.num_samples
    assert abs(len(waveform) / RATE - 9.0) < 0.25
    # The second part is where it belongs: its tone is another one.
    spectrum = abs(np.fft.rfft(waveform[-2 * RATE :]))
    assert abs(int(spectrum.argmax()) / 2 - 260) < 2


@pytest.mark.parametrize("name", ["vorbis.ogg", "opus.opus", "a.flac"])
@pytest.mark.parametrize("seconds", [(6.0, 3.0), (3.0, 3.0), (3.0, 6.0)])
def test_joined_ogg_and_flac_are_the_parts_one_after_the_other(audio, name, seconds, tmp_path):
    parts = [audio(name, length, seed) for seed, length in enumerate(seconds)]
    path = tmp_path / name
    path.write_bytes(b"".join(parts))
    expected = np.concatenate([read_audio(part)[0] for part in parts])
    for door in (str(path), b"".join(parts)):
        assert audio_info(door).num_samples == len(expected)
        assert np.array_equal(read_audio(door)[0], expected)
        rate = len(expected) / sum(seconds)
        start, end = sum(seconds) / 2 - 0.5, sum(seconds) / 2 + 0.5
        segment = read_audio(door, start, end)[0]
        # Opus rounds in another way after a jump.
        middle = expected[round(start * rate) : round(end * rate)]
        assert np.allclose(segment, middle, rtol=0, atol=0.01)


@pytest.mark.parametrize(
    "name",
    ["xing.mp3", "vbr.mp3", "quiet.mp3", "cbr.mp3", "gsm.wav", "a.m4a", "vorbis.ogg", "opus.opus"],
)
def test_a_segment_is_that_part_of_the_whole(audio, name):
    data = audio(name)
    whole, rate = read_audio(data)
    for start in (*np.arange(0.1, 5.0, 0.37), 5.15):
        segment = read_audio(data, start, start + 0.8)[0]
        first = round(start * rate)
        assert abs(segment - whole[first : first + len(segment)]).max() < 1, start


@pytest.mark.parametrize("name", ["vbr.mp3", "quiet.mp3"])
def test_mp3_without_a_header_of_length_sounds_as_ffmpeg_decodes_it(audio, name):
    ours, theirs = read_audio(audio(name))[0], by_ffmpeg(audio(name))
    late = len(theirs) - len(ours)  # the delay of the decoder, which FFmpeg leaves in
    assert 0 <= late <= 1105
    assert abs(ours - theirs[late:]).max() < 2


@pytest.mark.parametrize("name", ["vorbis.ogg", "opus.opus"])
def test_a_page_with_another_checksum_is_named(audio, name):
    data = audio(name)
    for place in np.linspace(60, len(data) - 10, 30).astype(int):
        damaged = bytearray(data)
        damaged[place] ^= 16
        with pytest.raises(AudioError, match=r"damaged|cut short|checksum|no known|no samples"):
            read_audio(bytes(damaged))


@pytest.mark.parametrize("name", ["vorbis.ogg", "opus.opus", "xing.mp3"])
def test_audio_that_is_cut_short_is_named_when_it_is_indexed(audio, name):
    data = audio(name)
    with pytest.raises(AudioError, match="cut short"):
        audio_info(data[: len(data) * 2 // 3])


@pytest.mark.parametrize("name", ["xing.mp3", "vbr.mp3", "a.flac", "a.aac"])
def test_a_tag_before_any_format_is_passed_over(audio, name):
    data = audio(name)
    assert np.array_equal(read_audio(ID3 + data)[0], read_audio(data)[0])


def test_joined_parts_of_other_rates_are_named(audio):
    flac = audio("a.flac")
    other = flac.replace(
        (RATE << 12).to_bytes(4, "big")[:2], (8000 << 12).to_bytes(4, "big")[:2], 1
    )
    assert other != flac
    with pytest.raises(AudioError):
        read_audio(flac + other)
