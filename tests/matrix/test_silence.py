"""Sounds without speech x families x entrances: nobody speaks, so there is no word, and the answer says
why.

The models have random weights and words for every sound, so that only the detector keeps words back.
`0`: no word; `1`: words. A real digit must have words everywhere. With `--all` each sound of each
length is heard by each family, and the table of the detectors is compared with that of the page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile

import wenet_uio
from tests.support.audio.sounds import RATE, SECONDS, no_speech
from tests.support.models.babblers import MODES, write_babbler
from tests.support.serve.clients import START, openai_client, served, speak
from tests.support.serve.realtime_clients import DONE, transcribe, transcripts
from tests.support.serve.trained_digits import voice
from wenet_uio.audio.decoders import Samples
from wenet_uio.bin import convert_checkpoint

PAGE = Path(__file__).parents[2] / "docs/concepts/listening.md"
NO_SPEECH = "no_speech"
SILERO = pytest.mark.skipif(find_spec("silero_vad") is None, reason="silero-vad is not installed")
USUAL = ("white -40", "chords", "typing")
"""Sounds of every change."""
SHORT = 2.0
"""Seconds."""


@pytest.fixture(scope="module")
def digit(corpora: Path) -> np.ndarray:
    """Three digits, from -1 to 1."""
    random = np.random.default_rng(2)
    said = [voice(corpora / "fsdd/recordings", digit, random) for digit in (3, 1, 4)]
    return np.concatenate(said)


@pytest.fixture(scope="module")
def babblers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, wenet_uio.SpeechRecogniser]:
    """{name of MODES: its model}"""
    folder = tmp_path_factory.mktemp("babblers")
    kinds = {kind for kind, _ in MODES.values()}
    loaded = {
        kind: wenet_uio.load_model(write_babbler(folder / kind, kind), device="cpu")
        for kind in kinds
    }
    return {name: loaded[kind] for name, (kind, _) in MODES.items()}


def row(values: Mapping[str, object]) -> str:
    return "  ".join(f"{value!s:>10}" for value in values.values())


def families_with_words(
    babblers: Mapping[str, wenet_uio.SpeechRecogniser], sounds: Mapping[str, np.ndarray]
) -> dict[str, dict[str, int]]:
    """{sound: {family: whether it has words}}; prints the table."""
    table: dict[str, dict[str, int]] = {name: {} for name in sounds}
    for family, recogniser in babblers.items():
        mode = MODES[family][1]
        for name, samples in sounds.items():
            transcript = recogniser.transcribe(
                samples=samples, sample_rate=RATE, mode=mode, beam_size=2
            )
            table[name][family] = int(bool(transcript.text))
            assert transcript.reason == (None if transcript.text else NO_SPEECH), (name, family)

    print(f"\n{'':16}" + row({family: family for family in babblers}))
    for name, cells in table.items():
        print(f"{name:16}{row(cells)}")
    return table


@SILERO
def test_no_family_has_words_for_a_sound_without_speech(
    babblers: dict[str, wenet_uio.SpeechRecogniser], digit: np.ndarray
) -> None:
    sounds = {name: no_speech()[name](SHORT) for name in USUAL}
    table = families_with_words(babblers, {"digits": digit, **sounds})
    assert set(table.pop("digits").values()) == {1}
    assert sum(sum(cells.values()) for cells in table.values()) == 0


@SILERO
@pytest.mark.all
@pytest.mark.parametrize("seconds", SECONDS)
def test_no_family_has_words_for_any_sound_without_speech_of_any_length(
    babblers: dict[str, wenet_uio.SpeechRecogniser], seconds: float
) -> None:
    sounds = {name: sound(seconds) for name, sound in no_speech().items()}
    table = families_with_words(babblers, sounds)
    assert sum(sum(cells.values()) for cells in table.values()) == 0


@SILERO
@pytest.mark.all
def test_the_page_names_the_sounds_that_each_detector_takes_for_speech() -> None:
    from wenet_uio.addons.listen.speech import find_speech

    lines = []
    for name, sound in no_speech().items():
        cells = []
        for detector in ("silero", "energy"):
            for seconds in SECONDS:
                samples = Samples(sound(seconds).astype(np.float32)[:, None], RATE)
                speech = find_speech(samples, 0, 0.4, 15.0, detector, uncut=20.0)
                cells.append("speech" if speech else "-")
        lines.append(f"    {name:11}" + "".join(f"{cell:9}" for cell in cells).rstrip())
    print("\n" + "\n".join(lines))
    page = PAGE.read_text(encoding="utf-8")
    assert all(line in page for line in lines)


def write(folder: Path, sounds: Mapping[str, np.ndarray]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for name, samples in sounds.items():
        paths[name] = folder / f"{name.replace(' ', '_')}.wav"
        soundfile.write(paths[name], samples.clip(-1, 1), RATE)
    return paths


@SILERO
@pytest.mark.parametrize(
    "names", [USUAL[1:2], pytest.param(tuple(no_speech()), marks=pytest.mark.all)], ids=len
)
def test_no_entrance_has_words_for_a_sound_without_speech_and_each_says_why(
    babblers: dict[str, wenet_uio.SpeechRecogniser],
    tmp_path: Path,
    digit: np.ndarray,
    names: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    recogniser = babblers["rescoring"]
    sounds = {name: no_speech()[name](SHORT) for name in names}
    for name, path in write(tmp_path, {"digits": digit, **sounds}).items():
        texts, reasons = answers(recogniser, path, tmp_path)
        with capsys.disabled():
            print(f"{name:16}" + "  ".join(f"{at} {bool(text):d}" for at, text in texts.items()))
        has_words = name == "digits"
        assert {at: bool(text) for at, text in texts.items()} == dict.fromkeys(texts, has_words)
        expected = None if has_words else NO_SPEECH
        assert reasons == dict.fromkeys(reasons, expected), name


def answers(
    recogniser: wenet_uio.SpeechRecogniser, path: Path, folder: Path
) -> tuple[dict[str, str], dict[str, str | None]]:
    """{entrance: text or all texts that were shown}, {entrance: reason}."""
    samples, rate = soundfile.read(path, dtype="int16")
    file = recogniser.transcribe(path)
    stream = recogniser.stream(sample_rate=rate)
    partials = ""
    for start in range(0, len(samples), rate // 10):
        stream.accept(samples[start : start + rate // 10])
        partials += stream.partial
    ended = stream.finish()
    texts = {
        "file": file.text,
        "list": recogniser.transcribe([path, path])[1].text,
        "srt": file.to_srt(),
        "vtt": file.to_vtt().replace("WEBVTT", "").strip(),
        "stream": ended.text,
        "partials": partials if not ended.text else ended.text,
    }
    reasons = {"file": file.reason, "stream": ended.reason, "json": file.to_dict().get("reason")}

    with served(recogniser) as home:
        client = openai_client(home.url)
        for style in ("json", "verbose_json", "srt", "vtt", "text"):
            answer = client.audio.transcriptions.create(
                model="any", file=path, response_format=style
            )
            text = answer if isinstance(answer, str) else answer.text
            texts[style] = text.replace("WEBVTT", "").strip()
            if not isinstance(answer, str):
                reasons[style] = (answer.model_extra or {}).get("reason")

        *_, done = client.audio.transcriptions.create(model="any", file=path, stream=True)
        assert done.type == "transcript.text.done"
        texts["events"] = done.text
        reasons["events"] = (done.model_extra or {}).get("reason")

        start = {**START, "sample_rate": rate}
        received = asyncio.run(speak(home.socket_url, samples, start))
        kinds = ("partial_result", "final_result")
        shown = [message for message in received if message.get("type") in kinds]
        texts["WebSocket"] = " ".join(
            hypothesis["sentence"] for each in shown for hypothesis in json.loads(each["nbest"])
        ).strip()
        reasons["WebSocket"] = shown[-1].get("reason")

        events = asyncio.run(transcribe(home.url, samples, rate))
        deltas = [event["delta"] for event in events if event["type"].endswith("delta")]
        texts["realtime"] = "".join([*deltas, *transcripts(events)])
        reasons["realtime"] = events[-1].get("reason")
        assert events[-1]["type"] == DONE
    return texts, reasons


@SILERO
@pytest.mark.all
def test_a_published_whisper_has_no_words_for_sounds_and_has_those_of_quiet_speech(
    published_whisper: Path, corpora: Path, tmp_path: Path
) -> None:
    convert_checkpoint.main(
        ["--input", str(published_whisper / "tiny.en.pt"), "--output_dir", str(tmp_path / "run")]
    )
    recogniser = wenet_uio.load_model(tmp_path / "run", device="cpu")
    for name, sound in no_speech().items():
        found = recogniser.transcribe(samples=sound(20.0), sample_rate=RATE, beam_size=1)
        assert (name, found.text, found.reason) == (name, "", NO_SPEECH)

    for path in sorted((corpora / "voices/audio").glob("kathleen-*"))[:3]:
        samples, rate = soundfile.read(path)
        expected = recogniser.transcribe(samples=samples, sample_rate=rate, beam_size=1).text
        quiet = samples / np.abs(samples).max() * 10 ** (-50 / 20)
        heard = recogniser.transcribe(samples=quiet, sample_rate=rate, beam_size=1).text
        assert len(heard.split()) == pytest.approx(len(expected.split()), abs=1)
