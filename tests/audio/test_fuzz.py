"""Damaged bytes of every format are audio or an AudioError: no other error, and none without end."""

import json

import numpy as np
import pytest
import soundfile
import torch

from tests.support.audio.arrays import npy, pth
from tests.support.audio.every_format import samples_of_every_format
from tests.support.data.kaldi_features import write_ark
from tests.support.fuzz import damaged
from wenet_uio.audio import read
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_signal
from wenet_uio.dataset.corpus.open_list import build_index


def originals(folder, with_ffmpeg):
    """Bytes of every format by name, without those that are cut short already."""
    found = {
        name: data
        for name, data in samples_of_every_format(with_ffmpeg=with_ffmpeg).items()
        if data and not name.startswith(("cut_", "stub_"))
    }
    matrix = np.random.default_rng(0).normal(0, 1, (30, 20)).astype(np.float32)
    found["tensor.pt"] = pth(torch.from_numpy(matrix))
    found["half.pt"] = pth(torch.from_numpy(matrix).bfloat16().T)
    for method in (None, "kSpeechFeature", "kTwoByteAuto", "kOneByteAuto"):
        folder.joinpath(f"method_{method}").mkdir()
        write_ark(folder / f"method_{method}", {"a": matrix}, method)
        (ark,) = folder.glob(f"method_{method}/*.ark")
        found[f"kaldi_{method}.mat"] = ark.read_bytes().partition(b"a ")[2]
    return found


def archives(found):
    """Objects of Kaldi archives, with a key before each."""
    objects = [data for name, data in found.items() if name.startswith("kaldi_")]
    wav, array = found["wav_pcm_16.wav"], npy(np.ones((30, 20), np.float32))
    for mark, data in ((b"AUDIO", wav), (b"NPY", array)):
        objects.append(mark + b"\4" + len(data).to_bytes(4, "little") + data)
    return {f"ark_{number}": b"key " + data for number, data in enumerate((*objects, wav))}


def check(name, source):
    """Read audio; returns whether it was refused."""
    try:
        info = audio_info(source)
        signal, _ = read_signal(source, channel=None)
    except AudioError as error:
        assert "\n" not in str(error)
        return True
    except Exception as error:
        raise AssertionError(f"{name}: {error!r}") from error
    assert info.num_samples > 0
    assert len(signal)
    return False


def check_all(folder, times, with_ffmpeg):
    """Damage every format `times` times; returns whether each case was refused."""
    found = originals(folder, with_ffmpeg)
    refused = [check(name, data) for name, data in damaged(found, times)]
    place = folder / "damaged.ark"
    for name, data in damaged(archives(found), times):
        place.write_bytes(data)
        refused.append(check(name, f"{place}:4"))
    return refused


def test_damaged_bytes_of_every_format_are_audio_or_named(tmp_path):
    refused = check_all(tmp_path, 12, with_ffmpeg=False)
    assert len(refused) / 5 < sum(refused) < len(refused)


@pytest.mark.all
def test_many_damaged_bytes_of_every_format_are_audio_or_named(tmp_path):
    refused = check_all(tmp_path, 100, with_ffmpeg=True)
    assert len(refused) / 5 < sum(refused) < len(refused)


@pytest.mark.parametrize("place", range(8, 18))
def test_four_zero_bytes_in_the_header_of_a_flac_are_a_bad_sample(place, tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.zeros(16_000, np.int16), 16_000)
    data = bytearray(path.read_bytes())
    data[place : place + 4] = bytes(4)
    path.write_bytes(data)
    (tmp_path / "raw.list").write_text(json.dumps({"key": "a", "wav": str(path), "txt": "x"}))
    index = build_index(str(tmp_path / "raw.list"), "raw")
    if index.bad:
        assert str(path) in index.bad[0].reason


def broken(*_):
    raise RuntimeError("a library\nfailed")


def test_any_error_of_a_parser_is_a_bad_sample_with_its_name(tmp_path, monkeypatch):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(16_000, np.int16), 16_000)
    monkeypatch.setattr(read, "_plain_wav", broken)
    with pytest.raises(AudioError, match=r"a\.wav: damaged \(RuntimeError: a library failed\)"):
        audio_info(str(path))


@pytest.mark.parametrize(
    ("error", "expected"), [(TypeError, RuntimeError), (MemoryError, MemoryError)]
)
def test_an_error_of_ours_ends_the_program_and_names_the_file(
    error, expected, tmp_path, monkeypatch
):
    def fail(*_):
        raise error

    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(16_000, np.int16), 16_000)
    monkeypatch.setattr(read, "_plain_wav", fail)
    with pytest.raises(expected, match=r"a\.wav: "):
        audio_info(str(path))
