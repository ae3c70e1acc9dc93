import csv
import io

import numpy as np
import pytest
import soundfile

from wenet_uio.dataset.audio import AudioError, audio_info, read_audio


def wav_bytes(samples, rate=16000, subtype="PCM_16", kind="WAV"):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT"])
def test_every_sample_format_has_the_scale_of_int16(subtype):
    samples = np.array([0.0, 0.25, -0.5, 0.999], dtype=np.float32)
    waveform, rate = read_audio(wav_bytes(samples, subtype=subtype))
    assert rate == 16000
    np.testing.assert_allclose(waveform, [0.0, 8192.0, -16384.0, 32735.0], atol=1.0)


def test_a_segment_is_cut_at_its_samples():
    samples = np.arange(16000, dtype=np.int16)
    waveform, _ = read_audio(wav_bytes(samples), start=0.25, end=0.5)
    assert waveform.tolist() == list(range(4000, 8000))


def test_one_channel_is_chosen():
    stereo = np.stack([np.full(100, 1, np.int16), np.full(100, 2, np.int16)], axis=1)
    assert set(read_audio(wav_bytes(stereo), channel=1)[0].tolist()) == {2.0}
    with pytest.raises(AudioError, match="channel 2 asked for, the audio has 2"):
        read_audio(wav_bytes(stereo), channel=2)


@pytest.mark.parametrize("data", [b"", b"no audio at all", wav_bytes(np.zeros(0, np.int16))])
def test_what_is_not_audio_is_refused(data):
    with pytest.raises(AudioError):
        audio_info(data)


def test_a_missing_file_is_an_audio_error(tmp_path):
    with pytest.raises(AudioError, match="absent.wav"):
        read_audio(str(tmp_path / "absent.wav"))


def test_the_header_and_the_waveform_agree_on_real_files(corpora):
    folder = corpora / "audio_formats"
    with open(folder / "index.tsv", encoding="utf-8") as file:
        names = [row[0] for row in csv.reader(file, delimiter="\t")][1:]
    agreed = 0
    for name in names:
        try:
            info = audio_info(str(folder / name))
            waveform, rate = read_audio(str(folder / name))
        except AudioError as error:
            assert str(error)
            continue
        assert rate == info.sample_rate
        assert abs(len(waveform) - info.num_samples) <= max(2304, info.num_samples // 100), name
        agreed += 1
    assert agreed >= 40
