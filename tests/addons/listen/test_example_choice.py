"""Examples come from the development set: short sentences that the model reads right."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import soundfile
import yaml

from tests.addons.listen.conftest import RATE, bursts, write_model
from tests.support import preloaded
from wenet_uio.addons.listen.example_choice import (
    choose_examples,
    choose_sentences,
    few_words,
    hear_shares,
    is_plain,
)
from wenet_uio.addons.listen.examples import Examples, read_examples, write_examples
from wenet_uio.bin import report_run
from wenet_uio.search.recogniser import load_recogniser

ROOT = Path(__file__).resolve().parents[3]
KEYS = [f"u{number}" for number in range(4)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a model in exp, and recordings of bursts in dev."""
    folder = tmp_path_factory.mktemp("recipe")
    write_model(folder / "exp")
    (folder / "dev").mkdir()
    with open(folder / "dev/data.list", "w") as lines:
        for seed, key in enumerate(KEYS):
            path = folder / f"dev/{key}.wav"
            starts = range(1, 2 * seed + 2, 2)
            soundfile.write(path, bursts(2 * seed + 2, starts, seed), RATE)
            lines.write(json.dumps({"key": key, "wav": str(path), "txt": "a"}) + "\n")
    return folder


@pytest.fixture(scope="module")
def heard(home):
    """The texts that the model reads."""
    recogniser = load_recogniser(home / "exp")
    (share,) = hear_shares(recogniser, home / "dev/data.list", "raw", None, "cpu")
    return share


def write_texts(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key} {text}\n" for key, text in texts.items()))


def test_sentences_are_those_that_the_model_reads_right(home, heard):
    assert sorted(heard) == KEYS
    texts = heard | {"u1": "not what it reads"}
    write_texts(home / "dev/text", texts)
    examples = choose_examples(home / "exp", home / "dev", languages=["en"], device="cpu")
    assert set(examples.sentences) == {texts[key] for key in KEYS if key != "u1"}
    assert examples.languages == ("en",)
    assert examples.words == ()  # nothing is known of a training


@pytest.mark.parametrize(
    ("record", "words"), [({}, ("a", "cab")), ({"from": "exp/whisper", "x": 1}, ())]
)
def test_words_are_those_of_the_training_unless_the_model_had_another_one_before(
    home, heard, record, words
):
    write_texts(home / "dev/text", heard)
    write_texts(home / "train/text", {"t1": "cab a", "t2": "a <noise> cab"})
    data = {"list": str(home / "train/data.list"), "utterances": 2, "hours": 1.0}
    start = {"train_data": data, **record}
    (home / "exp/environment.yaml").write_text(yaml.safe_dump([start]))
    assert choose_examples(home / "exp", home / "dev", device="cpu").words == words


def test_sentences_of_usual_length_and_common_words_come_before_others():
    common = [f"switch {colour} light on" for colour in ("the", "my", "your")]
    odd = ["on", "switch Siobhan light on", "the " * 12]
    counted = Counter(["THE", "MY", "YOUR", "SWITCH", "LIGHT", "ON"] * 3)
    assert choose_sentences([*odd, *common], counted) == common
    assert choose_sentences([*odd, *common[:2]], counted) == [
        "switch Siobhan light on",
        *common[:2],
    ]
    assert choose_sentences(["seven", "seven", "one"], Counter()) == ["seven", "one"]
    assert choose_sentences([], Counter()) == []


def test_five_sentences_are_spread_over_the_set():
    texts = [f"number {chr(97 + place)} is right" for place in range(25)]
    chosen = choose_sentences(texts, Counter())
    assert [texts.index(text) for text in chosen] == [2, 7, 12, 17, 22]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("turn on the light", True),
        ("Turn on the light, please.", True),
        ("don't", True),
        ("打开灯。", True),
        ("Привет мир", True),
        ("हिन्दी में बोलो", True),
        ("open rec_001.wav", False),
        ("open file.txt", False),
        ("e.g. this", False),
        ("a <unk> b", False),
        ("[laughs] yes", False),
        ("user@example", False),
        ("50% of /tmp", False),
        ("word " * 13, False),
        ("bell \x07", False),
        ("mark \u202e of direction", False),
    ],
)
def test_sentences_have_no_names_of_files_tags_or_control_characters(text, plain):
    assert is_plain(text) == plain


def test_no_more_of_a_large_set_is_recognised_than_is_needed(home, tmp_path):
    lines = (home / "dev/data.list").read_text().splitlines()
    repeated = [
        json.dumps(json.loads(line) | {"key": f"{copy}-{number}"})
        for copy in range(30)
        for number, line in enumerate(lines)
    ]
    (tmp_path / "data.list").write_text("\n".join(repeated) + "\n")
    recogniser = load_recogniser(home / "exp")
    shares = list(hear_shares(recogniser, tmp_path / "data.list", "raw", None, "cpu"))
    assert [len(share) for share in shares] == [32, 32, 32, 24]
    assert len({key for share in shares for key in share}) == 120
    copies = [int(key.partition("-")[0]) for key in shares[0]]
    assert min(copies) < 5
    assert max(copies) > 24  # spread over the set


def test_words_are_named_only_if_they_are_few():
    assert few_words(["two one", "one <unk>"]) == ["one", "two"]
    many = [chr(200 + number) for number in range(0x100)]
    letters = [letter for letter in many if letter.isalpha()]
    assert len(few_words(letters[:100])) == 100
    assert few_words(letters[:101]) == []


def test_the_report_of_a_run_writes_its_examples(home, heard, tmp_path, capsys):
    shutil.copytree(home / "exp", tmp_path / "exp")
    write_texts(home / "dev/text", heard)
    options = ("--language", "en,de", "--examples_of", str(home / "dev"))
    report_run.main([str(tmp_path / "exp"), *options])
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "exp/examples.yaml")
    examples = read_examples(tmp_path / "exp")
    assert set(examples.sentences) == set(heard.values())
    assert examples.languages == ("en", "de")


@pytest.mark.all
@pytest.mark.parametrize("shown", [True, False])
def test_examples_of_the_development_set_are_written_unless_they_are_private(
    home, heard, tmp_path, shown
):
    """Stage 5 of a recipe is decode.sh."""
    shutil.copytree(home / "exp", tmp_path / "exp")
    shutil.copy(home / "exp/final.pt", tmp_path / "exp/epoch_0.pt")
    (tmp_path / "exp/epoch_0.yaml").write_text("{epoch: 0, step: 1, loss_dict: {loss: 1.0}}\n")
    write_examples(tmp_path / "exp", Examples(("of an earlier run",)))
    for part in ("dev", "test"):
        write_texts(tmp_path / f"data/{part}/text", heard)
        shutil.copy(home / "dev/data.list", tmp_path / f"data/{part}/data.list")

    environment = preloaded.on_path()
    environment |= {"PATH": f"{ROOT / 'tools'}:{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    options = ("--language", "en", "--examples", str(shown).lower())
    done = subprocess.run(
        ("decode.sh", "--dir", "exp", "--decode_modes", "ctc_greedy_search", *options),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "exp/examples.yaml").exists() == shown
    if shown:
        assert done.stdout.splitlines()[-1] == "exp/examples.yaml"
        examples = read_examples(tmp_path / "exp")
        assert set(examples.sentences) == set(heard.values())
        assert examples.languages == ("en",)
