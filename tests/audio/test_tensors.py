"""WebDataset shards with waveforms as arrays, as SpeechBrain's recipes write them."""

from __future__ import annotations

import io
import json
import pickle
import re
import tracemalloc
import zipfile

import numpy as np
import pytest
import soundfile
import torch
import webdataset

from tests.support.audio.arrays import npy, pth
from tests.support.data.loading import loader, same
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.dataset.corpus.open_list import open_list

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
        return exec, ("raise SystemExit('unpickled')",)


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


def repacked(data, compress=zipfile.ZIP_STORED, **replacements):
    """A file of `torch.save` whose members are written again; `data_pkl` is `data.pkl`."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", compress) as new:
        for name in old.namelist():
            short = name.partition("/")[2].replace(".", "_").replace("/", "_")
            new.writestr(name, replacements.get(short, old.read(name)))
    return file.getvalue()


def described(data, old, new):
    """A file of `torch.save` whose description has other bytes in a place."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        description = archive.read("archive/data.pkl")
    assert old in description
    return repacked(data, data_pkl=description.replace(old, new))


def memo_far_away():
    """A pickle that asks for a memo of 2^31 entries."""
    return b"\x80\x02Nr" + (1 << 31).to_bytes(4, "little") + b"."


def long_bytearray():
    """A pickle that calls bytearray(2^33)."""
    return b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\0\0\0\0\x02\x85R."


SMALL = pth(torch.zeros(300))
NPY_OF_TERABYTES = npy(np.zeros(10, np.int16)).replace(b"(10,), }", b"(999999999999,), }")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pth(torch.zeros(1, 1).expand(1 << 20, 1 << 20)), "claims .* values and stores 1;"),
        # BININT2 300 as the length of the shape, and as the number of stored values
        (described(SMALL, b"M\x2c\x01\x85", b"J\0\0\0\x70\x85"), "claims 1879048192 values and"),
        (
            described(SMALL, b"M\x2c\x01t", b"J\0\0\0\x70t"),
            "claims 1879048192 values and stores 300",
        ),
        (
            repacked(pth(torch.zeros(10_000_000)), zipfile.ZIP_DEFLATED),
            "claims 4.* bytes in a file",
        ),
        (repacked(SMALL, data_pkl=memo_far_away()), "instruction LONG_BINPUT"),
        (repacked(SMALL, data_pkl=long_bytearray()), "builtins.bytearray"),
        (repacked(SMALL, data_pkl=b"\x80\x02(" + b"N" * 70_000 + b"t."), "more than a tensor"),
        (repacked(SMALL, data_pkl=b"\x80\x04\x96" + b"\xff" * 7 + b"\0."), "without pickle"),
        (NPY_OF_TERABYTES[:-20] + bytes(20), "claims 1999999999998 bytes of values and stores"),
        (npy(np.zeros(10, np.dtype([("日", "i2")]))), "an array in version 3"),
        (b"ID3\x03\0\0\0\0\0\0" + SMALL, "."),
        (b"ID3\x03\0\0\0\0\0\0" * 100_000, "."),
        (b"ID3", "its ID3 tag is cut short"),
    ],
)
def test_a_small_file_that_claims_much_is_refused_before_memory_is_reserved(data, message):
    tracemalloc.start()
    try:
        with pytest.raises(AudioError, match=message):
            read_audio(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(data) + 4_000_000


def test_tensors_of_other_types_and_byte_orders_are_read_as_torch_reads_them():
    values = torch.linspace(-0.5, 0.5, 6000)
    plain, _ = read_audio(pth(values))
    for other in (values.double(), values.half(), values.bfloat16(), torch.nn.Parameter(values)):
        assert np.abs(read_audio(pth(other))[0] - plain).max() < 200
    swapped = values.numpy().astype(">f4").tobytes()
    assert np.array_equal(
        read_audio(repacked(pth(values), byteorder=b"big", data_0=swapped))[0], plain
    )
    stepped = values.view(3000, 2)[:, 1]
    assert np.array_equal(read_audio(pth(stepped))[0], plain[1::2])


def test_a_raw_list_names_a_tensor_that_claims_much(tmp_path):
    (tmp_path / "odd.pt").write_bytes(described(SMALL, b"M\x2c\x01\x85", b"J\0\0\0\x70\x85"))
    (tmp_path / "good.pt").write_bytes(pth(torch.zeros(5000)))
    lines = [json.dumps({"key": key, "wav": f"{key}.pt", "txt": "a"}) for key in ("odd", "good")]
    (tmp_path / "raw.list").write_text("\n".join(lines))
    corpus = open_list(str(tmp_path / "raw.list"), "raw")
    assert (corpus.num_samples, [key for key, _ in corpus.bad]) == (1, ["odd"])
