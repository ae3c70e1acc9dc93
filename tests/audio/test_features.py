"""Stored features: what kaldi_native_io writes is read bit for bit; damage and other objects are
named.
"""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile
import torch

from tests.support.data.kaldi_features import METHODS, read_by_kaldi, write_ark
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.features import encoded_size, place_of, read_encoded
from wenet_uio.audio.read import audio_info, read_audio, read_signal

RANDOM = np.random.default_rng(0)
MATRICES = {
    "rising": np.arange(300, dtype=np.float32).reshape(30, 10),
    "normal": (5 * RANDOM.normal(size=(50, 40)) + 2).astype(np.float32),
    "constant": np.full((12, 5), 3.5, np.float32),
    "short": RANDOM.normal(size=(1, 13)).astype(np.float32),
}


def places(folder):
    return dict(line.split(maxsplit=1) for line in (folder / "feats.scp").read_text().splitlines())


@pytest.mark.parametrize("method", [None, *METHODS, "kOneByteUnsignedInteger", "kOneByteZeroOne"])
def test_matrices_are_those_that_kaldi_reads(method, tmp_path):
    write_ark(tmp_path, MATRICES, method)
    expected = read_by_kaldi(tmp_path)
    assert expected.keys() == MATRICES.keys()
    for key, place in places(tmp_path).items():
        feats, rate = read_signal(place)
        assert (feats.dtype, rate) == (np.float32, 100)
        np.testing.assert_array_equal(feats, expected[key])
        info = audio_info(place)
        assert (info.num_samples, info.channels, info.is_features) == (*feats.shape, True)
        stored = read_encoded(place)  # as a shard holds it
        assert len(stored) == encoded_size(place)
        np.testing.assert_array_equal(read_signal(memoryview(stored))[0], feats)


def test_matrices_of_doubles_are_read_as_floats(tmp_path):
    matrix = RANDOM.normal(size=(7, 3))
    write_ark(tmp_path, {"a": matrix})
    np.testing.assert_array_equal(read_signal(places(tmp_path)["a"])[0], matrix.astype(np.float32))


@pytest.mark.parametrize("method", [None, "kSpeechFeature"])
def test_ranges_are_inclusive_as_in_kaldi_and_segments_are_seconds(method, tmp_path):
    write_ark(tmp_path, MATRICES, method)
    place = places(tmp_path)["normal"]
    whole = read_signal(place)[0]
    for text, part in {
        "[3:9]": whole[3:10],
        "[0:49,0:12]": whole[:, :13],
        "[:,2:2]": whole[:, 2:3],
        "[40:52]": whole[40:],
    }.items():
        np.testing.assert_array_equal(read_signal(place + text)[0], part)
        assert audio_info(place + text).num_samples == len(part)
    np.testing.assert_array_equal(read_signal(place, 0.1, 0.25)[0], whole[10:25])
    np.testing.assert_array_equal(read_signal(place + "[10:29]", 0.1)[0], whole[20:30])
    for text in ("[40:53]", "[9:3]", "[50:51]", "[0:9,0:40]"):
        with pytest.raises(
            AudioError, match=r"feats.ark:\d+\S+: the f\w+ \d+:\d+ of a matrix with \d+ f"
        ):
            audio_info(place + text)


def test_a_path_that_exists_or_names_no_byte_is_no_place_in_an_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:12").write_bytes(b"")
    for path in ("a:12", "/d/x.wav", "x:y", "http://host:80/a.wav", "[0:3]", ""):
        assert place_of(path).path == path
    assert place_of("/d/x.ark:7[1:2]") == ("/d/x.ark", 7, (1, 2), None)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_arrays_of_features_are_told_from_waveforms_by_their_shape():
    matrix = MATRICES["normal"]
    tensor = io.BytesIO()
    torch.save(torch.from_numpy(matrix).to(torch.bfloat16), tensor)
    for data in (
        npy(matrix),
        npy(matrix.astype(np.float64)),
        npy(np.asfortranarray(matrix)),
        tensor.getvalue(),
    ):
        feats, rate = read_signal(data)
        assert (feats.shape, rate) == ((50, 40), 100)
        with pytest.raises(
            AudioError, match=r"stored features \(50 frames of 40\), where a waveform is needed"
        ):
            read_audio(data)
    assert read_signal(npy(np.zeros((2, 500), np.float32)))[0].shape == (500,)


def kaldi(kind, frames, dim, rest=b""):
    return b"\0B" + kind + b" " + struct.pack("<bibi", 4, frames, 4, dim) + rest


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            kaldi(b"FM", 3, 2, bytes(20)),
            "cut short or damaged: a Kaldi matrix of 3 x 2 in 35 bytes",
        ),
        (kaldi(b"FM", 2**31 - 1, 2**31 - 1), "cut short or damaged"),
        (kaldi(b"DM", -1, 2), "cut short or damaged"),
        (b"\0BFM \x08" + bytes(30), "the header of its Kaldi matrix is damaged"),
        (b"\0BFM \x04\xff\xff\xff\x7f\x04\0\0\0\0", "cut short or damaged"),
        (b"\0BFV \x04" + bytes(30), "a Kaldi object 'FV', which is no matrix"),
        (b"\0BCM2 \0\0", "cut short: 8 bytes of a Kaldi matrix"),
        (kaldi(b"FM", 0, 0), "no samples"),
        (kaldi(b"FM", 1, 1, struct.pack("<f", float("nan"))), "not finite numbers"),
        (
            b"utt1 " + kaldi(b"FM", 1, 1, bytes(4)),
            r"name one of them by its byte, as feats.scp does",
        ),
    ],
)
def test_damaged_matrices_and_other_objects_are_refused(data, message):
    with pytest.raises(AudioError, match=message):
        audio_info(data)
        read_signal(data)


def test_a_byte_without_a_matrix_is_named_and_wav_in_archives_is_read(tmp_path):
    wav = io.BytesIO()
    soundfile.write(wav, np.arange(400, dtype=np.int16), 8000, format="WAV")
    (tmp_path / "wav.ark").write_bytes(b"utt1 " + wav.getvalue() + b"utt2 " + wav.getvalue())
    second = 5 + len(wav.getvalue()) + 5
    assert read_audio(f"{tmp_path}/wav.ark:{second}")[0].tolist() == list(range(400))
    with pytest.raises(AudioError, match="a range of frames in brackets, but this is audio"):
        read_audio(f"{tmp_path}/wav.ark:{second}[0:3]")
    for byte in (4, 6, 10**9):
        with pytest.raises(
            AudioError, match=f"wav.ark:{byte}: no Kaldi matrix in binary form at byte {byte}"
        ):
            audio_info(f"{tmp_path}/wav.ark:{byte}")
    with pytest.raises(AudioError, match=r"gone.ark:5: No such file"):
        audio_info(f"{tmp_path}/gone.ark:5")


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
@pytest.mark.parametrize("samples", [40, 400, 70_000])
def test_audio_behind_the_mark_of_kaldiio_is_read(tmp_path, kind, samples):
    """`AUDIO`, the number of bytes of the length, the length, the encoded audio."""
    sound = np.arange(samples, dtype=np.int16)
    encoded = io.BytesIO()
    soundfile.write(encoded, sound, 8000, format=kind)
    audio = encoded.getvalue()
    width = -(-len(audio).bit_length() // 8)
    entry = b"AUDIO" + bytes([width]) + len(audio).to_bytes(width, "little") + audio
    (tmp_path / "a.ark").write_bytes(b"utt1 " + entry + b"utt2 " + entry)
    for place in (5, 5 + len(entry) + 5):
        path = f"{tmp_path}/a.ark:{place}"
        assert audio_info(path).num_samples == samples
        assert (read_audio(path)[0] == sound).all()
        assert read_encoded(path) == audio
