"""WebDataset shards with waveforms as arrays, as SpeechBrain's recipes write them."""

from __future__ import annotations

import io
import json
import pickle
import re
import sys

import numpy as np
import pytest
import soundfile
import torch
import webdataset

from tests.support.data.loading import loader, same
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.dataset.corpus.open_list import open_list


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def pth(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


WAVE = np.random.default_rng(0).integers(-20000, 20000, 5000).astype(np.int16)


@pytest.mark.parametrize(
    "data",
    [
        *(
            npy(WAVE),
            npy(WAVE[None]),
            npy(WAVE[:, None]),
            npy(WAVE / 32768),
            npy((WAVE / 32768).astype(np.float32)),
        ),
        *(pth(torch.from_numpy(WAVE)), pth(torch.from_numpy(WAVE)[None].float() / 32768)),
        pth(torch.from_numpy(np.stack([WAVE, -WAVE])).float() / 32768),
    ],
)
def test_arrays_of_every_shape_and_type_are_the_waveform_at_16_khz(data, tmp_path):
    info = audio_info(data)
    assert (info.num_samples, info.sample_rate) == (5000, 16000)
    waveform, rate = read_audio(memoryview(data))
    assert rate == 16000
    assert np.array_equal(waveform, WAVE.astype(np.float32))
    (tmp_path / "a.npy").write_bytes(data)
    assert len(read_audio(str(tmp_path / "a.npy"), 0.1, 0.2)[0]) == 1600


class Runs:
    def __reduce__(self):
        return sys.exit, ("unpickled",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            npy(np.zeros((300, 80), np.int16)),
            r"an array of shape \(300, 80\), which is no waveform",
        ),
        (npy(np.zeros((2, 3, 4), np.float32)), "which is no waveform"),
        (npy(np.zeros(9, np.int64)), "an array of int64; a waveform is of int16, float32, float64"),
        (npy(np.array([{}], object)), "cannot be read without pickle"),
        (pth({"a": torch.zeros(9)}), "holds a dict, not a tensor; store the waveform alone"),
        (pth([Runs()]), "cannot be read without pickle"),
        (npy(WAVE)[:60], "cannot be read without pickle"),
        (npy(np.zeros(0, np.float32)), "no samples"),
        (npy(np.zeros((0, 80), np.float32)), r"an array of shape \(0, 80\), which has no samples"),
        (npy(np.full(9, np.nan)), "."),
    ],
)
def test_other_arrays_are_refused_and_nothing_is_unpickled(data, message):
    with pytest.raises(AudioError, match=message):
        read_audio(data)


@pytest.mark.parametrize("frames", [1, 2, 8, 9])
def test_a_matrix_of_few_frames_is_features(frames):
    info = audio_info(npy(np.ones((frames, 80), np.float32)))
    assert (info.is_features, info.num_samples, info.channels) == (True, frames, 80)


@pytest.mark.parametrize("channels", [1, 2, 8])
def test_an_array_of_few_long_rows_is_a_waveform(channels):
    info = audio_info(npy(np.ones((channels, 401), np.float32)))
    assert (info.is_features, info.num_samples, info.channels) == (False, 401, channels)


@pytest.mark.parametrize("field", ["audio.pth", "npy", "wav"])
def test_shards_with_arrays_give_the_batches_of_shards_with_wav(field, tmp_path):
    random = np.random.default_rng(1)
    waves = [
        random.integers(-9000, 9000, 4000 + 800 * number).astype(np.int16) for number in range(12)
    ]
    lists = {}
    for kind in (field, "flac"):
        with webdataset.ShardWriter(
            str(tmp_path / f"{kind}-%d.tar"), maxcount=6, verbose=0
        ) as writer:
            for number, wave in enumerate(waves):
                file = io.BytesIO()
                soundfile.write(file, wave, 16000, format="FLAC" if kind == "flac" else "WAV")
                stored = {"audio.pth": pth(torch.from_numpy(wave)), "npy": npy(wave)}.get(
                    kind, file.getvalue()
                )
                sample = {
                    "__key__": f"u{number}",
                    kind: stored,
                    "json": {"text": "abc", "sample_rate": 16000},
                }
                # Neither features as an array beside audio nor a pickle is taken for the audio.
                others = {"feats.npy": npy(np.zeros((9, 80)))} if kind == "wav" else {}
                writer.write(sample | others | {"x.pyd": pickle.dumps(Runs())})
        lists[kind] = tmp_path / f"{kind}.list"
        lists[kind].write_text(f"{tmp_path}/{kind}-{{0..1}}.tar\n")
    corpora = [open_list(str(path), "shard") for path in lists.values()]
    assert [corpus.bad for corpus in corpora] == [[], []]
    assert len({corpus.digest for corpus in corpora}) == 1
    conf = {"resample_conf": {"resample_rate": 16000}}
    first, second = (list(loader(str(path), "shard", conf=conf)) for path in lists.values())
    assert all(same(left, right) for left, right in zip(first, second, strict=True))


def test_an_array_that_states_another_rate_is_bad(tmp_path):
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write({"__key__": "a", "npy": npy(WAVE), "json": {"text": "x", "sample_rate": 8000}})
        writer.write({"__key__": "b", "npy": npy(WAVE), "json": {"text": "x"}})
    (tmp_path / "a.list").write_text(f"{tmp_path}/a.tar\n")
    (bad,) = open_list(str(tmp_path / "a.list"), "shard").bad
    assert bad[0] == "a"
    assert (
        "npy is an array at 8000 Hz; arrays are read at 16000 Hz: store it as flac or wav" in bad[1]
    )


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.randn(50, 80).to_sparse(), "holds a sparse tensor"),
        (torch.randn(50, 80).to_sparse_csr(), "holds a sparse tensor"),
        (
            torch.quantize_per_tensor(torch.randn(50, 80), 0.1, 0, torch.qint8),
            "holds a quantised tensor",
        ),
        (torch.randn(50, 80, device="meta"), "holds a meta tensor"),
        (torch.zeros(1, 80).expand(1 << 40, 80), "claims .* values and stores 80"),
        (torch.randn(50, 80, dtype=torch.complex64).conj(), "an array of shape"),
    ],
)
def test_a_tensor_of_another_kind_is_named_among_others_of_its_list(tensor, message, tmp_path):
    lines = []
    for key, value in (("odd", tensor), ("good", torch.zeros(5000))):
        (tmp_path / f"{key}.pt").write_bytes(pth(value))
        lines.append(json.dumps({"key": key, "wav": f"{key}.pt", "txt": "a"}))
    (tmp_path / "raw.list").write_text("\n".join(lines))
    corpus = open_list(str(tmp_path / "raw.list"), "raw")
    assert corpus.num_samples == 1
    ((key, reason),) = corpus.bad
    assert key == "odd"
    assert re.search(message, reason)


def test_a_tensor_that_wants_a_gradient_is_read():
    waveform, _ = read_audio(pth(torch.full((5000,), 0.5, requires_grad=True)))
    assert (waveform == 0.5 * 32768).all()
