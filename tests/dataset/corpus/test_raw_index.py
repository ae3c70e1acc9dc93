import json

import pytest

from tests.support.data.tars import wav
from tests.support.storage.servers import serving
from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.read import audio_info
from wenet_uio.dataset.corpus import raw_index
from wenet_uio.dataset.corpus.index import NOMINAL_RATE, Entry
from wenet_uio.dataset.corpus.open_list import THREADS, open_list
from wenet_uio.dataset.corpus.raw_index import RATE_LINES, entry_of, nominal_rate_of
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.list_file import DataList, LineFile
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(0.5, rate=8000))
    return str(tmp_path / "a.wav")


def test_the_length_of_a_line_comes_from_the_header_of_its_audio(path):
    assert entry_of(RawLine("a", path, " hi "), "x.list", 7, 50) == Entry("a", 4000, 8000, 2, 7, 50)
    assert entry_of(RawLine("a", path, "hi", 0.1, 0.3), "x.list", 7, 50).num_samples == 1600
    assert entry_of(RawLine("a", path, "hi", 0.4, 0.55), "x.list", 7, 50).num_samples == 800


@pytest.mark.parametrize("start", [0.0, 0.4])
def test_a_segment_that_ends_after_its_audio_is_refused_beyond_rounding(path, start):
    with pytest.raises(AudioError, match=r"the segment ends at 9\.00 s, the audio at 0\.50 s"):
        entry_of(RawLine("a", path, "hi", start, 9.0), "x.list", 7, 50)


def test_a_line_that_states_a_duration_needs_no_audio():
    stated = {"duration": 1.5}
    assert entry_of(RawLine("a", "none.wav", "", extra=stated), "x.list", 0, 1)[1:3] == (
        24000,
        NOMINAL_RATE,
    )
    stated["sampling_rate"] = 8000
    assert entry_of(RawLine("a", "none.wav", "", extra=stated), "x.list", 0, 1)[1:3] == (
        12000,
        8000,
    )


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_a_manifest_without_sampling_rate_has_the_digest_of_its_audio_at_any_rate(tmp_path, rate):
    entries = []
    for number in range(3):
        (tmp_path / f"{number}.wav").write_bytes(wav(0.5 + number / 10, rate=rate, seed=number))
        seconds = audio_info(str(tmp_path / f"{number}.wav")).num_samples / rate
        entries.append({"audio_filepath": f"{number}.wav", "text": "x", "duration": seconds})
    for name, lines in (
        ("stated", entries),
        ("measured", [{**each, "duration": None} for each in entries]),
    ):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    digests = {open_list(str(tmp_path / name), "raw").digest for name in ("stated", "measured")}
    assert len(digests) == 1


def rate_of(path):
    """The nominal rate of a list."""
    data_list = DataList(LineFile(str(path)), "raw")
    return nominal_rate_of(str(path), data_list.head[:RATE_LINES], DEFAULT_LAYOUT, {})


@pytest.mark.parametrize(
    ("first", "rate"),
    [
        ('{"wav": "a.wav", "txt": "", "duration": 1}', 8000),
        ('{"wav": "a.wav", "txt": "", "duration": 1, "sampling_rate": 22050}', 22050),
        ("{broken", 8000),
        ('{"wav": "none.wav", "txt": "", "duration": 1}', 8000),
    ],
)
def test_the_nominal_rate_is_that_of_the_first_line_that_tells_a_rate(path, tmp_path, first, rate):
    (tmp_path / "x.list").write_text(f'{first}\n{{"wav": "a.wav", "txt": "", "duration": 1}}\n')
    assert rate_of(tmp_path / "x.list") == rate


def test_the_nominal_rate_of_a_list_whose_audio_is_elsewhere_is_16_khz(tmp_path):
    (tmp_path / "x.list").write_text('{"wav": "none.wav", "txt": "", "duration": 1}\n' * 20)
    assert rate_of(tmp_path / "x.list") == NOMINAL_RATE


def test_the_search_of_a_nominal_rate_waits_for_a_store_for_seconds_and_does_not_mark_it_as_lost(
    path, tmp_path, monkeypatch
):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "100000")
    monkeypatch.setattr(raw_index, "RATE_SECONDS", 0.3)
    with serving(tmp_path) as server:
        url = server.url
    (tmp_path / "x.list").write_text(f'{{"wav": "{url}/a.wav", "txt": "", "duration": 1}}\n' * 3)
    assert rate_of(tmp_path / "x.list") == NOMINAL_RATE
    with serving(tmp_path, port=int(url.rpartition(":")[2])):
        assert rate_of(tmp_path / "x.list") == 8000


@pytest.mark.parametrize(("start", "end"), [(0.6, None), (0.3, 0.2), (0.2, 0.2)])
def test_a_segment_without_audio_is_refused(path, start, end):
    assert AudioInfo(4000, 8000, 1).samples_between(start, end) == 0
    with pytest.raises(AudioError, match=f"no audio between {start} s and {end} s"):
        entry_of(RawLine("a", path, "hi", start, end), "x.list", 0, 1)


def test_a_list_with_one_remote_file_is_remote(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    lines = [
        '{"wav": "a.wav", "txt": "a://b"}',
        "{broken s3://b",
        '{"wav": "file:///c.wav", "txt": ""}',
    ]
    for more, expected in (([], False), (['{"wav": "s3://b/c.wav", "txt": ""}'], True)):
        (tmp_path / "x.list").write_text("\n".join([*lines, *more]))
        data_list = DataList(LineFile(str(tmp_path / "x.list")), "raw")
        made = raw_index.raw_index(data_list, 1000, THREADS, DEFAULT_LAYOUT)
        assert made.is_remote == expected


def test_a_list_of_local_audio_is_not_remote(path, tmp_path):
    (tmp_path / "x.list").write_text(json.dumps({"key": "a", "wav": path, "txt": "hi"}) + "\n")
    assert not open_list(str(tmp_path / "x.list"), "raw").is_remote
