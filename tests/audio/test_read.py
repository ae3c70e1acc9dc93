import csv
import io
import json
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from tests.support.audio import encoded as by_ffmpeg
from tests.support.audio.crashing import crash_at_marked, mark
from tests.support.lowest_versions import requirements_of
from wenet_uio.audio import read as audio
from wenet_uio.audio.decoders import AudioError, AvDecoder, Excerpt
from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.base.crashes import careful

ROOT = Path(__file__).parents[2]
TONE = (3000 * np.sin(np.arange(16000) / 5)).astype(np.int16)

NOISE = np.random.default_rng(0).integers(-5000, 5000, 16000, np.int16)


def encoded(samples, rate=16000, subtype="PCM_16", kind="WAV"):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


def wav(claimed_bytes=None, rate=16000, channels=1, samples=TONE, before_data=b""):
    """A wav file whose header may differ from its data."""
    data = samples.tobytes()
    size = len(data) if claimed_bytes is None else claimed_bytes
    frame = 2 * channels & 0xFFFF
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * frame & 0xFFFFFFFF, frame, 16)
    chunks = (
        b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + before_data
        + b"data"
        + struct.pack("<I", size)
        + data
    )
    return b"RIFF" + struct.pack("<I", min(2**32 - 1, 36 + size)) + chunks


def flac(claimed_samples):
    """One second of flac whose header claims another length; flac that is written to a pipe claims
    0.
    """
    data = bytearray(encoded(TONE, kind="FLAC"))
    data[21] = data[21] & 0xF0 | claimed_samples >> 32
    data[22:26] = (claimed_samples & 0xFFFFFFFF).to_bytes(4, "big")
    return bytes(data)


def sphere(coding):
    lines = [
        "NIST_1A",
        "   1024",
        "channel_count -i 1",
        "sample_count -i 16000",
        "sample_rate -i 16000",
    ]
    lines += ["sample_n_bytes -i 2", "sample_byte_format -s2 01", "sample_sig_bits -i 16"]
    lines += [f"sample_coding -s{len(coding)} {coding}", "end_head", ""]
    return "\n".join(lines).encode().ljust(1024) + TONE.tobytes()


def decode_within(megabytes, paths):
    """Decode files in a process with limited memory; gives the result of each by its path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests/support/audio/decode.py"), str(megabytes)]
    stdin = "\n".join(map(str, paths))
    done = subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [path for path, *_ in found] == list(map(str, paths))
    return {path: rest for path, *rest in found}


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT"])
def test_every_sample_format_has_the_scale_of_int16(subtype):
    samples = np.array([0.0, 0.25, -0.5, 0.999], dtype=np.float32)
    waveform, rate = read_audio(encoded(samples, subtype=subtype))
    assert rate == 16000
    np.testing.assert_allclose(waveform, [0.0, 8192.0, -16384.0, 32735.0], atol=1.0)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "AIFF"])
def test_a_segment_is_cut_at_its_samples_in_memory_and_on_disk(kind, tmp_path):
    samples = np.arange(16000, dtype=np.int16)
    data = encoded(np.stack([samples, -samples], axis=1), kind=kind)
    (tmp_path / "audio").write_bytes(data)
    for source in (data, memoryview(data), str(tmp_path / "audio")):
        waveform, _ = read_audio(source, start=0.25, end=0.5)
        assert waveform.tolist() == list(range(4000, 8000))
        waveform, _ = read_audio(source, start=0.75, channel=1)
        assert waveform.tolist() == list(range(-12000, -16000, -1))


@pytest.mark.parametrize(
    ("start", "end"), [(-1.0, None), (float("nan"), None), (0.0, float("inf")), (2.0, 3.0)]
)
def test_a_segment_without_audio_is_refused(start, end):
    with pytest.raises(AudioError, match="not a segment|no samples between"):
        read_audio(wav(), start, end)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_one_channel_is_chosen_or_all_are_mixed(kind):
    stereo = encoded(
        np.stack([np.full(100, 1, np.int16), np.full(100, 2, np.int16)], axis=1), kind=kind
    )
    assert set(read_audio(stereo, channel=1)[0].tolist()) == {2.0}
    assert set(read_audio(stereo, channel="mix")[0].tolist()) == {1.5}
    for channel in (2, -1, "left"):  # a channel number may come from data
        with pytest.raises(
            AudioError, match=f"channel {channel} .counted from 0. requested, the audio has 2"
        ):
            read_audio(stereo, channel=channel)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "AIFF"])
def test_samples_stored_with_16_bits_are_returned_as_int16_on_request(kind):
    stereo = np.stack([NOISE, TONE], axis=1)
    waveform, _ = read_audio(encoded(stereo, kind=kind), channel=1, keep_int16=True)
    assert waveform.dtype == np.int16
    assert np.array_equal(waveform, TONE)
    for options, subtype in (({"channel": "mix"}, "PCM_16"), ({}, "PCM_24")):
        waveform, _ = read_audio(
            encoded(stereo, kind=kind, subtype=subtype), keep_int16=True, **options
        )
        assert waveform.dtype == np.float32


def test_plain_wav_gives_the_same_samples_as_libsndfile():
    stereo = np.random.default_rng(0).integers(-32768, 32767, (5000, 2), np.int16)
    with_more_chunks = wav(
        samples=stereo, channels=2, before_data=b"LIST" + struct.pack("<I", 3) + b"abc\0"
    )
    for data in (encoded(stereo), with_more_chunks):
        expected, rate = soundfile.read(io.BytesIO(data), dtype="int16")
        assert audio._plain_wav(memoryview(data), data[: audio.HEAD], len(data)) is not None
        assert read_audio(data, channel=1)[0].tolist() == expected[:, 1].tolist()
        assert audio_info(data) == audio.AudioInfo(5000, rate, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, 20000.0])
def test_floating_point_samples_out_of_range_are_refused(value):
    with pytest.raises(AudioError, match="times full scale"):
        read_audio(encoded(np.array([0.1, value], np.float32), subtype="FLOAT"))


HOSTILE = {
    "wav of 4 GB": (wav(claimed_bytes=2**32 - 1), 16000),
    "wav cut in its samples": (wav()[:1045], 500),
    "flac of unknown length": (flac(0), 16000),
    "flac of 2^36 samples": (flac(2**36 - 1), 16000),
    "flac of 100 s": (flac(1_600_000), "damaged, or cut short"),
    "flac cut short": (encoded(NOISE, kind="FLAC")[:20000], "damaged, or cut short"),
    "wav of nothing": (wav(samples=TONE[:0]), "no samples"),
    "wav that says it holds nothing": (wav(claimed_bytes=0), "no samples"),
    "wav at 0 Hz": (wav(rate=0), "Internal error|sample rate 0 Hz"),
    "wav at 4 GHz": (wav(rate=4_000_000_000), "Internal error|sample rate"),
    "wav at 5 MHz": (wav(rate=5_000_000), "sample rate 5000000 Hz is not within"),
    "wav of no channel": (wav(channels=0), "Channel count is zero"),
    "wav of 60000 channels": (wav(channels=60000), "Too many channels"),
    "wav of 1000 channels": (wav(channels=1000), 16),
    "wav without samples": (wav()[:36], "No 'data' chunk"),
    "flac without samples": (encoded(TONE, kind="FLAC")[:42], "damaged, or cut short"),
    "sphere": (sphere("pcm"), 16000),
    "sphere with shorten": (sphere("pcm,embedded-shorten-v2.00"), "sph2pipe -f wav"),
    "m4a cut short": (b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom\0\0\0\0" + b"\0" * 100, "mov: "),
    "webm cut short": (b"\x1a\x45\xdf\xa3" + b"\0" * 100, "matroska: "),
    "wav of an unknown codec": (
        encoded(TONE)[:20] + b"\x34\x12" + encoded(TONE)[22:],
        "Malformed 'fmt ' chunk",
    ),
    "nothing": (b"", "empty: 0 bytes"),
    "a text": (b"no audio at all", "no known format"),
    "noise": (np.random.default_rng(0).bytes(20000), "no known format"),
}


def test_hostile_headers_cost_neither_memory_nor_time_and_raise_audio_errors(tmp_path):
    paths = {}
    for name, (data, _) in HOSTILE.items():
        paths[name] = tmp_path / name
        paths[name].write_bytes(data)
    found = decode_within(128, paths.values())
    for name, (_, expected) in HOSTILE.items():
        result = found[str(paths[name])]
        if isinstance(expected, int):
            assert result[:2] == [expected, expected], (name, result)
        else:
            (reason,) = result
            assert any(part in reason for part in expected.split("|")), (name, reason)


@pytest.mark.parametrize("kind", ["absent.wav", "folder", "fifo"])
def test_a_path_that_is_not_a_file_is_an_audio_error_with_the_path(kind, tmp_path):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(AudioError, match=f"{kind}: (No such file|not a file)"):
        read_audio(str(path))


def test_running_out_of_file_descriptors_is_not_an_audio_error(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), hard))
    held = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(open(os.devnull))
        with pytest.raises(OSError, match="Too many open files"):
            read_audio(str(tmp_path / "a.wav"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in held:
            file.close()


def test_in_a_careful_process_a_decoder_that_crashes_is_an_audio_error(
    make_utterances, monkeypatch
):
    whole, marked = (line.wav for line in make_utterances(2))
    mark(marked)
    crash_at_marked(monkeypatch)
    expected = read_audio(whole)[0]
    with careful():
        np.testing.assert_array_equal(read_audio(whole)[0], expected)
        with pytest.raises(
            AudioError, match=rf"^{marked}: the decoder crashed its process \(SIGSEGV\)"
        ):
            read_audio(marked)
        with pytest.raises(AudioError, match=r"^the decoder crashed its process"):
            read_audio(Path(marked).read_bytes())


def test_without_pyav_its_formats_are_refused_with_the_command_to_install_it(corpora, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(AudioError, match=r"format_test.m4a: mov audio needs PyAV: pip install av"):
        audio_info(str(corpora / "audio_formats/pydub/format_test.m4a"))


def test_audio_of_phones_needs_no_package_beyond_the_requirements():
    root = Path(__file__).resolve().parents[2]
    assert "av" in {each.name for each in requirements_of([root / "requirements.txt"])}


# Files that only FFmpeg reads: samples, rate, channels.
THROUGH_AV = {
    "pydub/bach.ogg": [133632, 44100, 1],
    "pydub/format_test.m4a": [425984, 44100, 1],
    "pydub/wrong_extension.aac": [425984, 44100, 1],
    "pydub/test5.webm": [71040, 48000, 2],
    "audiomentations/testing.m4a": [141312, 44100, 1],
}

# Samples of mp3 without a header of length, as FFmpeg decodes them; the table has an estimate.
COUNTED = {
    "lhotse/common_voice_en_651325.mp3": 114048,
    "pydub/party.mp3": 290304,
    "pydub/tessst.mp3": 69120,
}


def test_every_real_file_decodes_as_expected_or_is_refused_with_a_reason(corpora):
    folder = corpora / "audio_formats"
    with open(folder / "index.tsv", encoding="utf-8") as file:
        index = {row["path"]: row for row in csv.DictReader(file, delimiter="\t")}
    found = decode_within(256, [folder / name for name in index])
    refused = {name for name in index if len(found[str(folder / name)]) == 1}
    raws = {name for name in index if name.endswith(".raw")}
    no_audio = {"awful.wav", "bad.wav", "evil.wav", "null.wav"}
    assert refused == raws | {f"pocketsphinx/{name}" for name in no_audio} | {
        "pydub/test1_empty.wav"
    }
    assert all("must be converted to wav first" in found[str(folder / name)][0] for name in raws)
    for name in index.keys() - refused:
        claimed, decoded, rate, channels = found[str(folder / name)]
        row = index[name]
        if name in THROUGH_AV:
            assert [claimed, rate, channels] == THROUGH_AV[name]
        else:
            assert [rate, channels] == [int(row["sample_rate"]), int(row["channels"])]
            expected = COUNTED.get(name, float(row["duration"]) * rate)
            assert claimed == pytest.approx(expected, abs=0.0006 * rate)
        assert claimed == decoded, name


def film(container, codec):
    """A film: five pictures by this codec, and the TONE."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as made:
        pictures = made.add_stream(codec, rate=25, width=64, height=64, pix_fmt="yuv420p")
        sound = made.add_stream("pcm_s16le", rate=16000, layout="mono")
        for _ in range(5):
            made.mux(pictures.encode(av.VideoFrame(64, 64, "yuv420p")))
        frame = av.AudioFrame.from_ndarray(TONE[None], format="s16", layout="mono")
        frame.sample_rate = 16000
        made.mux(sound.encode(frame))
        made.mux([*pictures.encode(), *sound.encode()])
    return file.getvalue()


@pytest.mark.parametrize(
    ("container", "codec"), [("avi", "magicyuv"), ("matroska", "ffv1"), ("avi", "mpeg4")]
)
def test_pictures_of_a_film_are_not_decoded(container, codec):
    """Pictures of a film can overflow a buffer of FFmpeg's decoders (CVE-2026-8461)."""
    data = film(container, codec)
    level = av.logging.get_level()
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture() as messages:
            decoder = AvDecoder(io.BytesIO(data), container, is_whole=True)
            assert np.array_equal(decoder.read(Excerpt(0, None, 0)), TONE)
            decoder.close()
    finally:
        av.logging.set_level(level)
    assert any(f"Codec ({codec}) not on whitelist" in text for _, _, text in messages)


@pytest.mark.skipif(not by_ffmpeg.HAS_FFMPEG, reason="needs ffmpeg")
def test_decoders_of_ffmpeg_start_no_threads():
    """A forked worker that frees its parent's decoder would wait for such threads forever."""
    data = by_ffmpeg.encoded("g722.wav")
    assert data is not None
    before = len(os.listdir("/proc/self/task"))
    decoder = AvDecoder(io.BytesIO(data), "wav", is_whole=True)
    assert len(decoder.read(Excerpt(0, 0.1, 0))) == 1600
    assert len(os.listdir("/proc/self/task")) == before
    decoder.close()
