"""Transcripts of every form become a recipe that prepares, trains and scores without an edit."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.examples.test_corpora import call, recipe
from tests.support import preloaded
from tests.support.data.corpus_layouts import LAYOUTS, recordings
from tests.support.recipes.files import noise
from wenet_uio.prepare.new_recipe import write_recipe
from wenet_uio.prepare.readers import read_kaldi

__all__ = ["recipe"]

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


TINY = (
    "max_epoch=1 encoder_conf.num_blocks=1 interctc_layer_idx=null encoder_conf.output_size=32 "
    "encoder_conf.linear_units=32 decoder_conf.num_blocks=1 decoder_conf.linear_units=32 "
    "observe_interval=0 report=false"
)
OPERATOR = """\
class Louder:
    def __call__(self, example):
        example.waveform.mul_(1.5)
        return example
"""


def test_fsdd_as_folder_and_tsv_is_trained_scored_and_exported_without_an_edit(recipe, corpora):
    # The clone, whose name has blanks and quotes, as have all paths below
    home = recipe("custom").parents[2]
    (home / "my recordings").symlink_to(corpora / "fsdd" / "recordings")
    with open(home / "my digits.tsv", "w", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerow(("path", "sentence", "speaker", "split"))
        for digit, text in enumerate(DIGITS):
            for index, part in (
                (0, "test"),
                (5, "dev"),
                *((index, "train") for index in range(8, 12)),
            ):
                table.writerow((f"{digit}_theo_{index}.wav", text, "theo", part))
    tool = ("--from", "my digits.tsv", "--audio", "my recordings", "--examples", home / "examples")
    made = call(preloaded.python(), ROOT / "tools" / "new_recipe.py", "digits", *tool, cwd=home)
    assert made.returncode == 0, made.stderr
    assert "40 train, 10 dev, 10 test utterances" in made.stdout
    folder = home / "examples" / "digits" / "s0"
    (folder / "local" / "louder.py").write_text(OPERATOR)
    (folder / "hot words").write_text("one\n")
    tiny = TINY + (
        ' dataset_conf.operators=[{"use":"local.louder:Louder","after":"decode","evaluation":true}]'
    )
    run = (
        "bash",
        folder / "run.sh",
        "--dir",
        "exp/my 'run'",
        "--dict",
        "data/it's my dict",
        "--nj",
        "1",
    )
    done = call(
        *run, "--override", tiny, "--average_num", "1", "--decode_modes", "ctc_greedy_search "
                                                                          "attention_rescoring",
        "--decode_options", "--context_list_path 'hot words'", cwd=home.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\w+) +([\d.]+) +[\d.]+ +[\d.]+ +(\d+) ", done.stdout, re.MULTILINE)
    assert [(mode, tokens) for mode, _, tokens in rows] == [
        ("ctc_greedy_search", "10"),
        ("attention_rescoring", "10"),
    ]
    assert (folder / "exp" / "my 'run'" / "final.zip").stat().st_size > 0
    assert [path.name for path in home.parent.iterdir()] == [home.name]

    louder = folder / "local" / "louder.py"
    louder.rename(louder.with_name("other.py"))  # the recipe does not hold this code any more
    refused = call(*run, "--stage", "6", cwd=home)
    assert refused.returncode == 1
    assert "names code that would run: local.louder:Louder; " in refused.stderr.splitlines()[-1]


@pytest.mark.all
def test_recordings_with_subtitles_are_trained_without_an_edit(recipe, corpora):
    home = recipe("custom").parents[2]  # the clone
    corpus = LAYOUTS["srt"](home / "my corpus", recordings(corpora, takes=1))
    made = make_recipe(home, "--from", corpus)
    assert made.returncode == 0, made.stderr
    script = home / "examples" / "own" / "s0" / "run.sh"
    done = call(
        "bash",
        script,
        "--stage",
        "0",
        "--stop_stage",
        "4",
        "--override",
        TINY,
        "--nj",
        "1",
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    assert (script.parent / "exp/train_transducer/epoch_0.pt").is_file()


@pytest.mark.all
@pytest.mark.parametrize(
    ("alphabet", "config"),
    [("abc", "train_transducer"), ("".join(map(chr, range(0x4E00, 0x5200))), "train_conformer")],
    ids=["letters", "Mandarin characters"],
)
def test_the_units_decide_between_transducer_and_conformer(recipe, alphabet, config):
    home = recipe("custom").parents[2]
    corpus = home / "corpus"
    corpus.mkdir()
    rows = ["audio\ttext"]
    for number in range(30):
        soundfile.write(corpus / f"{number}.wav", np.zeros(8000), 16000)
        share = len(alphabet) // 30 + 1
        rows.append(f"{number}.wav\t{(alphabet * 20)[number * share : (number + 1) * share]}")
    (corpus / "table.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    script = home / "examples" / "custom" / "s0" / "run.sh"
    run = ("bash", script, "--data", corpus / "table.tsv", "--nj", "1", "--config", "auto")
    prepared = call(*run, "--stop_stage", "3", cwd=home)
    assert prepared.returncode == 0, prepared.stderr
    assert "because there are" not in prepared.stderr
    trained = call(*run, "--stage", "4", "--stop_stage", "4", "--override", "no_key=1", cwd=home)
    assert re.search(rf"conf/{config}.yaml, because there are \d+ units", trained.stderr)
    assert f"stage 4: train (exp/{config})" in trained.stderr


def make_recipe(folder: Path, *options: str | Path):
    tool = ROOT / "tools" / "new_recipe.py"
    return call(
        preloaded.python(), tool, "own", "--examples", folder / "examples", *options, cwd=folder
    )


def prepared(folder: Path) -> dict[str, list]:
    """Run stage 0 of the recipe in `folder` from another folder; returns the lines of each part."""
    (folder / "elsewhere").mkdir(exist_ok=True)
    script = folder / "examples" / "own" / "s0" / "run.sh"
    done = call("bash", script, "--stage", "0", "--stop_stage", "0", cwd=folder / "elsewhere")
    assert done.returncode == 0, done.stderr
    return {
        part: read_kaldi(str(script.parent / "data" / part)) for part in ("train", "dev", "test")
    }


def transcripts(form: str, folder: Path, wavs: list[str]) -> Path:
    """Write transcripts `text N` of audio with relative paths, in a folder without audio."""
    (folder / "lists").mkdir()
    said = [(wav, f"text {number}") for number, wav in enumerate(wavs)]
    if form == "kaldi":
        (folder / "lists" / "wav.scp").write_text(
            "".join(f"k{n} {wav}\n" for n, wav in enumerate(wavs))
        )
        (folder / "lists" / "text").write_text(
            "".join(f"k{n} {text}\n" for n, (_, text) in enumerate(said))
        )
        return folder / "lists"
    if form == "lhotse":
        lhotse = pytest.importorskip("lhotse")
        rows = []
        for wav, text in said:
            recording = lhotse.Recording.from_file(folder / wav)
            heard = lhotse.SupervisionSegment(wav, recording.id, 0.0, recording.duration, text=text)
            cut = lhotse.MonoCut(
                wav.replace("/", "-"), 0.0, recording.duration, 0, [heard], recording=recording
            )
            rows.append(json.dumps(cut.to_dict()).replace(json.dumps(f"{folder}/")[1:-1], ""))
    elif form == "nemo":
        rows = [
            json.dumps({"audio_filepath": wav, "text": text, "duration": 0.4}) for wav, text in said
        ]
    elif form == "csv":
        rows = ["wav_filename,wav_filesize,transcript", *(f"{wav},1,{text}" for wav, text in said)]
    else:
        rows = ["path\ttext\tstart\tend", *(f"{wav}\t{text}\t0\t0.3" for wav, text in said)]
    path = folder / "lists" / {"csv": "a.csv", "tsv": "a.TSV"}.get(form, "a.jsonl")
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["tsv", "csv", "nemo", "lhotse", "kaldi"])
def test_every_form_is_prepared_and_divided_and_paths_may_have_spaces_and_be_relative(recipe, form):
    home = recipe("custom").parents[2]  # the clone
    wavs = [
        f"my calls/{speaker}/call {number}.wav" for speaker in ("ann", "bo") for number in range(3)
    ]
    for wav in wavs:
        noise(home / wav, 8000)
    made = make_recipe(home, "--from", transcripts(form, home, wavs))
    assert made.returncode == 0, made.stderr
    parts = prepared(home)
    assert all(parts.values())
    assert (
        ", ".join(f"{len(of)} {part}" for part, of in parts.items()) + " utterances" in made.stdout
    )
    found = sorted((line.text, line.wav) for of in parts.values() for line in of)
    assert found == [(f"text {number}", str(home / wav)) for number, wav in enumerate(wavs)]
    if form == "tsv":
        assert {(line.start, line.end) for of in parts.values() for line in of} == {(0.0, 0.3)}


def test_an_official_division_is_given_as_files(recipe):
    home = recipe("custom").parents[2]  # the clone
    for number, part in enumerate(("train", "dev", "test")):
        noise(home / f"{number}.wav", 8000)
        (home / f"{part}.json").write_text(
            json.dumps({"audio_filepath": f"{number}.wav", "text": part}) + "\n"
        )
    made = make_recipe(home, "--from", "train.json", "--dev", "dev.json", "--test", "test.json")
    assert made.returncode == 0, made.stderr
    assert {part: [line.text for line in of] for part, of in prepared(home).items()} == {
        "train": ["train"],
        "dev": ["dev"],
        "test": ["test"],
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("path,text\nhere.wav,one\nnowhere.wav,two\n", "nowhere: audio nowhere.wav is not in "),
        (
            "recording,said\ngone,1\n",
            "columns that the first row may name are wav: wav, path",
        ),
        ("path,text\nhere.wav,one\n", "1 utterances cannot be divided into train, dev, test"),
        (
            "path,text,split\nhere.wav,one,train\n",
            "no utterance is for dev and test: set the field part or split",
        ),
        ("path text\nhere.wav one\n", "fields are separated by a comma"),
    ],
)
def test_errors_of_stage_0_are_reported_and_no_recipe_is_written(tmp_path, rows, message):
    noise(tmp_path / "here.wav", 8000)
    (tmp_path / "a.csv").write_text(rows)
    made = make_recipe(tmp_path, "--from", "a.csv")
    assert made.returncode == 1
    (error,) = made.stderr.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert not (tmp_path / "examples").exists()


def test_a_text_that_is_empty_when_it_is_normalized_is_refused(tmp_path):
    rows = "".join(
        f"{part}.wav,{text},{part}\n"
        for part, text in (("train", "?!"), ("dev", "a"), ("test", "b"))
    )
    for part in ("train", "dev", "test"):
        noise(tmp_path / f"{part}.wav", 8000)
    (tmp_path / "a.csv").write_text(f"path,text,part\n{rows}")
    made = make_recipe(tmp_path, "--from", "a.csv", "--text", "english")
    assert made.stderr == f"error: train: {tmp_path / 'train.wav'} has no text\n"
    assert not (tmp_path / "examples").exists()


def test_a_new_recipe_says_how_it_is_run_and_lists_all_its_configs(tmp_path):
    template, folder = ROOT / "examples" / "custom" / "s0", tmp_path / "own" / "s0"
    write_recipe(template, folder, "own", {"data": "/corpora/a.tsv"})
    header = (folder / "run.sh").read_text().split("set -eu")[0]
    assert header.splitlines()[1:5] == ["# own.  Results: README.md", "#", "#   bash run.sh", "#"]
    assert "new_recipe.py" not in header
    listed = re.findall(r"^\| `(conf/.*)` ", (folder / "README.md").read_text(), re.MULTILINE)
    assert listed == sorted(
        str(path.relative_to(template)) for path in template.glob("conf/*.yaml")
    )


def test_values_with_quotes_and_spaces_come_back_from_bash(tmp_path):
    folder = tmp_path / "examples" / "own" / "s0"
    value = "/corpora/it's a \\1 folder/a $x.tsv"
    write_recipe(ROOT / "examples" / "custom" / "s0", folder, "own", {"data": value, "form": "tsv"})
    (line,) = [
        line for line in (folder / "run.sh").read_text().splitlines() if line.startswith("data=")
    ]
    assert call("bash", "-c", f'{line}\nprintf %s "$data"', cwd=tmp_path).stdout == value
    assert (folder / "run.sh").read_text().splitlines()[1].startswith("# own.")


def test_an_existing_recipe_and_an_invalid_name_are_refused(tmp_path):
    template = ROOT / "examples" / "custom" / "s0"
    (tmp_path / "own").mkdir()
    with pytest.raises(ValueError, match="own exists already"):
        write_recipe(template, tmp_path / "own", "own", {})
    with pytest.raises(ValueError, match="expected letters"):
        write_recipe(template, tmp_path / "x" / "s0", "../x", {})
