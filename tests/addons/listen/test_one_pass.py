"""One pass of the encoder over whole recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import wenet_uio
from tests.addons.listen.conftest import RATE, write_model
from tests.addons.listen.tone_model import tones, write_tone_model
from wenet_uio.addons.listen import speech
from wenet_uio.addons.listen.one_pass import RecordingFrames
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.speech import Segment
from wenet_uio.addons.listen.transcription import Transcriber
from wenet_uio.audio.decoders import AudioError
from wenet_uio.models import recording
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import load_recogniser
from wenet_uio.search.types import DecodeOptions

LIMITED = {
    "att_context_size": [6, 3],
    "pos_enc_layer_type": "rope_pos",
    "selfattention_layer_type": "rope_abs_selfattn",
    "use_dynamic_chunk": False,
    "causal": False,
}
TEXT = "ab1cabd2dcba1ca"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that hears tones, with limited attention."""
    return write_tone_model(tmp_path_factory.mktemp("tones") / "exp", **LIMITED)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and pieces that divide a recording of some seconds."""
    monkeypatch.setattr(speech, "BLOCK", 2.0)
    monkeypatch.setattr(speech, "STEP", 1.0)
    monkeypatch.setattr(recording, "PIECE", 16)


def letters(text: str) -> str:
    """What the model hears in `tones(text)`."""
    return "".join(letter for letter in text if not letter.isdigit())


@pytest.mark.parametrize("mode", ["ctc_greedy_search", "ctc_prefix_beam_search"])
@pytest.mark.parametrize("pause", [0.3, 0])
def test_texts_and_times_are_those_of_the_recording(folder: Path, mode: str, pause: float) -> None:
    model = wenet_uio.load_model(folder, device="cpu")
    options = {"mode": mode, "pause": pause, "window": 4.0, "one_pass": True, "detector": "energy"}
    for batch_size in (1, 3):
        found = model.transcribe(
            samples=tones(TEXT), sample_rate=RATE, batch_size=batch_size, **options
        )
        assert found.text.replace(" ", "") == letters(TEXT)
        assert len(found.segments) == (4 if pause else 1)
        times = [token.time for segment in found.segments for token in segment.tokens]
        starts = [place for place, letter in enumerate(TEXT) if not letter.isdigit()]
        said = [
            sum(int(each) if each.isdigit() else 0.4 for each in TEXT[:place]) for place in starts
        ]
        assert times == pytest.approx([start + 0.15 for start in said], abs=0.2)


def test_several_recordings_of_any_length_give_what_each_gives_alone(
    folder: Path, tmp_path: Path
) -> None:
    model = wenet_uio.load_model(folder, device="cpu")
    texts = ["ab1c", "1", "d", "", "b2" * 6 + "a"]
    paths = [tmp_path / f"{place}.wav" for place in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        soundfile.write(path, tones(text) if text else np.full(100, 0.1), RATE)
    found = model.transcribe([str(path) for path in paths], one_pass=True, detector="energy")
    assert [each.text.replace(" ", "") for each in found] == [letters(text) for text in texts]


def frames_of(folder: Path, source: str) -> tuple[Transcriber, RecordingFrames]:
    """A transcriber, and the frames that it makes of a recording."""
    search = Search(["ctc_greedy_search"], DecodeOptions())
    transcriber = Transcriber(load_recogniser(folder), search, one_pass=True)
    return transcriber, transcriber._one_pass_frames(source, 0)


@pytest.mark.parametrize("rate", [RATE, 8000])
def test_frames_of_segments_are_those_of_the_whole(folder: Path, tmp_path: Path, rate: int) -> None:
    path = str(tmp_path / "talk.wav")
    soundfile.write(path, tones(TEXT, rate), rate, subtype="PCM_16")
    transcriber, frames = frames_of(folder, path)
    samples = torch.from_numpy(soundfile.read(path, dtype="int16")[0])
    example = transcriber.features("", samples.float(), rate)
    assert example is not None
    assert example.feats is not None
    with torch.no_grad():
        whole, _ = transcriber._model.encode(
            example.feats[None], torch.tensor([len(example.feats)])
        )
        end = len(samples) / rate
        covered = 0
        for start in np.arange(0.0, end, 0.7):
            first, found = frames.between(Segment(start, min(start + 1.0, end)))
            torch.testing.assert_close(
                found, whole[0, first : first + len(found)], atol=2e-4, rtol=1e-4
            )
            middles = [transcriber.clock.middle(first + place) for place in range(len(found))]
            assert all(start - 1e-6 <= middle < start + 1.0 for middle in middles)
            covered = max(covered, first + len(found))
    assert covered == whole.size(1)


def test_memory_does_not_grow_with_the_recording(folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "long.wav")
    soundfile.write(path, np.tile(tones(TEXT), 12), RATE)
    _, frames = frames_of(folder, path)
    kept = []
    with torch.no_grad():
        for start in range(0, 100, 4):
            frames.between(Segment(start, start + 3.0))
            encoder = frames._encoder
            kept.append(
                frames._kept.size(1) + sum(layer._inputs.size(1) for layer in encoder._layers)
            )
    assert max(kept[5:]) <= max(kept[:5])


def test_a_recording_that_breaks_off_gives_its_error_last(folder: Path, tmp_path: Path) -> None:
    good, bad = str(tmp_path / "good.flac"), str(tmp_path / "bad.flac")
    soundfile.write(good, tones(TEXT), RATE)
    data = Path(good).read_bytes()
    Path(bad).write_bytes(data[: len(data) // 2])
    search = Search(["ctc_greedy_search"], DecodeOptions(token_times=True))
    transcriber = Transcriber(load_recogniser(folder), search, batch_size=2, one_pass=True)
    sources = [lambda: good, lambda: bad, lambda: good]
    found = list(transcriber.transcribe(sources, Cutting(pause=None, window=3.0, overlap=1.0)))
    errors = [(number, result) for number, result in found if isinstance(result, Exception)]
    assert [number for number, _ in errors] == [1]
    assert isinstance(errors[0][1], AudioError)
    texts = {number: result.text for number, result in found if not isinstance(result, Exception)}
    assert texts[0] == texts[2]
    assert texts[0].replace(" ", "") == letters(TEXT)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (
            {"use_dynamic_chunk": False},
            r"one_pass: its frames see the whole audio; train with two limits",
        ),
        (
            {"use_dynamic_chunk": False, "att_context_size": [8, -1]},
            "one_pass: its frames see the whole audio",
        ),
        (
            {**LIMITED, "input_layer": "conv1d2"},
            "one_pass: input_layer conv1d2 pads each chunk with zeros",
        ),
    ],
)
def test_other_models_are_refused_by_name(tmp_path: Path, encoder: dict, message: str) -> None:
    model = wenet_uio.load_model(write_model(tmp_path / "exp", **encoder), device="cpu")
    with pytest.raises(ValueError, match=message):
        model.transcribe(samples=tones("ab"), sample_rate=RATE, one_pass=True)


def test_chunks_are_refused(folder: Path) -> None:
    model = wenet_uio.load_model(folder, device="cpu")
    with pytest.raises(
        ValueError,
        match="one_pass: the encoder sees the whole recording, so decoding_chunk_size has",
    ):
        model.transcribe(
            samples=tones("ab"),
            sample_rate=RATE,
            one_pass=True,
            decoding={"decoding_chunk_size": 4},
            detector="energy",
        )
