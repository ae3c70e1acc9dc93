"""Stages 0 to 3 of every recipe on a miniature of its corpus, in both modes, with the texts that
its layout implies.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support import preloaded
from tests.support.recipes import miniatures
from tests.support.recipes.files import lines
from wenet_uio.text.symbols import read_symbols
from wenet_uio.text.table import read_table

ROOT = Path(__file__).resolve().parents[2]
CORPORA = (
    "yesno",
    "fsdd",
    "dspspeech20",
    "speechocean762",
    "aishell",
    "aishell2",
    "librispeech",
    "voices",
    "an4",
    "wenetspeech",
    "fisher",
    "hub5",
    "custom",
)
USUAL = ("fsdd", "aishell", "librispeech", "custom")
"""Recipes whose stages run in every change."""
ELSEWHERE = {"espeak", "large"}
"""Recipes whose corpora are made in tests of their own."""
CLONE = """it's a "clone" * $HOME; {1..2} [ab] #1 & x"""


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess:
    environment = preloaded.on_path() | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def recipe(tmp_path):
    """A function that copies a recipe without its data and exp, beside links to the repository;
    returns the folder.

    The names of the folders have blanks, quotes and other characters that a shell treats specially.
    """
    clone = tmp_path / CLONE

    def copy(name: str) -> Path:
        clone.mkdir()
        for there in ("path.sh", "requirements.txt", "requirements", "tools", "wenet_uio"):
            (clone / there).symlink_to(ROOT / there)
        made = shutil.ignore_patterns("data", "exp")
        return Path(
            shutil.copytree(
                ROOT / "examples" / name / "s0", clone / "examples" / name / "s0", ignore=made
            )
        )

    return copy


def listed_texts(recipe: Path, part: str, data_type: str) -> dict[str, str]:
    """key -> text of a raw list, or of the tars of a shard list."""
    entries = (recipe / "data" / part / "data.list").read_text(encoding="utf-8").splitlines()
    if data_type == "raw":
        return {entry["key"]: entry["txt"] for entry in map(json.loads, entries)}
    texts = {}
    for entry in entries:
        with tarfile.open(recipe / entry) as tar:
            texts |= {
                Path(name).stem: tar.extractfile(name).read().decode()
                for name in tar.getnames()
                if name.endswith(".txt")
            }
    return texts


def test_every_recipe_has_a_miniature_of_its_corpus():
    assert {path.parent.parent.name for path in ROOT.glob("examples/*/*/run.sh")} == {
        *CORPORA,
        *ELSEWHERE,
    }


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in USUAL else pytest.mark.all) for name in CORPORA],
)
def test_data_cmvn_dict_and_lists_of_a_miniature(recipe, tmp_path, name):
    folder, corpus = recipe(name), tmp_path / CLONE / "corpus"
    expected = getattr(miniatures, name)(corpus)
    options = [option.format(corpus) for option in miniatures.OPTIONS.get(name, ())]
    if "--data" not in options:
        options = ["--data", str(corpus), *options]
    for data_type, stage in (("raw", "-1"), ("shard", "3")):
        result = call(
            "bash", folder / "run.sh", *options, "--nj", "1", "--data_type", data_type,
            "--stage", stage, "--stop_stage", "3", cwd=tmp_path,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        for part, texts in expected.items():
            assert read_table(folder / "data" / part / "text") == texts
            assert listed_texts(folder, part, data_type) == texts
        (units,) = folder.glob("data/dict*/units.txt")
        assert len(read_symbols(units)) > 3
        assert json.loads((folder / "data" / "train" / "global_cmvn").read_text())["frame_num"] > 0


@pytest.mark.parametrize(
    ("name", "folder", "counts"),
    [
        ("yesno", "yesno", (40, 5, 15)),
        ("dspspeech20", "dspspeech20_zh", (624, 96, 96)),
        ("speechocean762", "speechocean762", (440, 80, 200)),
        ("voices", "voices", (3516, 208, 396)),
    ],
)
def test_real_recordings_are_cut_into_parts_of_other_speakers(
    corpora, tmp_path, name, folder, counts
):
    prepare = ROOT / "examples" / name / "s0" / "local" / "prepare_data.py"
    result = call(preloaded.python(), prepare, corpora / folder, tmp_path / "data", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    tables = [read_table(tmp_path / "data" / part / "text") for part in ("train", "dev", "test")]
    assert tuple(len(table) for table in tables) == counts
    if name == "voices":  # the same three speakers
        texts = [set(table.values()) for table in tables]
        assert not (texts[0] & texts[1])
        assert not (texts[2] & (texts[0] | texts[1]))
    elif name != "yesno":  # one speaker
        speakers = [
            {key.split("-")[0] if "-" in key else key[:5] for key in table} for table in tables
        ]
        assert not speakers[0] & speakers[1]
        assert not speakers[2] & (speakers[0] | speakers[1])


@pytest.mark.third
@pytest.mark.parametrize("name", CORPORA)
def test_a_missing_corpus_is_one_clear_line(recipe, tmp_path, name):
    folder = recipe(name)
    (tmp_path / "empty").mkdir()
    options = ("--fisher", tmp_path / "nowhere") if name == "hub5" else ()
    result = call(
        "bash",
        folder / "run.sh",
        "--data",
        "empty",
        "--stage",
        "0",
        "--stop_stage",
        "0",
        *options,
        cwd=tmp_path,
    )
    assert result.returncode == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert len(result.stderr.splitlines()) == 2, result.stderr
    assert (
        "run stage 0 of the fisher recipe" if name == "hub5" else str(tmp_path / "empty")
    ) in error
    assert not (folder / "data").exists()


@pytest.mark.all
def test_dspspeech20_runs_from_its_first_stage_to_its_last(recipe, corpora, tmp_path):
    excerpt, folder = corpora / "dspspeech20_zh", recipe("dspspeech20")
    head, *rows = (excerpt / "manifest.tsv").read_text(encoding="utf-8").splitlines()
    lines(tmp_path / "corpus" / "manifest.tsv", head, *rows[::5])  # all words
    (tmp_path / "corpus" / "wav").symlink_to(excerpt / "wav")
    package = folder.parents[2] / "wenet_uio"
    package.unlink()
    # Commands import this copy, beneath a folder with a strange name
    shutil.copytree(ROOT / "wenet_uio", package)
    result = call(
        "bash", folder / "run.sh", "--data", tmp_path / "corpus", "--average_num", "1",
        "--override", "max_epoch=1 epoch_steps=5 observe_interval=0 encoder_conf.num_blocks=1 "
        "encoder_conf.output_size=48 encoder_conf.linear_units=64 decoder_conf.linear_units=64",
        "--decode_modes", "ctc_greedy_search", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    made = folder / "exp" / "train_conformer"
    assert "Overall -> " in (made / "ctc_greedy_search" / "wer").read_text()
    assert (made / "final.zip").stat().st_size > (made / "final_quant.zip").stat().st_size > 0


def test_espeak_recognises_people_only_if_their_recordings_are_named(recipe, tmp_path):
    folder = recipe("espeak")
    result = call("bash", folder / "run.sh", "--stage", "7", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: stage 7 needs --people FOLDER")

    (folder.parents[1] / "fsdd").symlink_to(ROOT / "examples/fsdd")
    recordings = tmp_path / "people" / "recordings"
    recordings.mkdir(parents=True)
    result = call("bash", folder / "run.sh", "--stage", "7", "--people", "people", cwd=tmp_path)
    assert result.returncode == 1
    assert f"no recordings/*.wav in {tmp_path}/people" in result.stderr

    for name in ("7_theo_0", "3_theo_5", "1_theo_9"):
        soundfile.write(recordings / f"{name}.wav", np.zeros(4000, np.int16), 8000)
    result = call("bash", folder / "run.sh", "--stage", "7", "--people", "people", cwd=tmp_path)
    assert result.returncode == 1
    assert "train.yaml is missing; stage 4 makes it" in result.stderr
    assert len((folder / "data/people/test/data.list").read_text().splitlines()) == 1


def test_espeak_data_of_another_language_or_with_all_audio_is_refused(recipe, tmp_path):
    folder = recipe("espeak")
    (folder / "data").mkdir()
    (folder / "data" / "lang").write_text("en\n")
    for options, needed in (
        ("--lang zh", "--lang zh"),
        ("--hybrid true", "--lang en --hybrid true"),
        ("--joined true", "--lang en --joined true"),
    ):
        result = call("bash", folder / "run.sh", *options.split(), "--stage", "1", cwd=tmp_path)
        assert result.returncode == 1
        assert (
            result.stderr == f"error: data/ was prepared for --lang en; run stage 0 with {needed}\n"
        )
    assert (
        call("bash", folder / "run.sh", "--lang", "zh", "--stage", "99", cwd=tmp_path).returncode
        == 0
    )
    for name in ("lang", "mixture.yaml", "train/global_cmvn", "dict/units.txt"):
        (folder / "data" / name).parent.mkdir(exist_ok=True)
        (folder / "data" / name).write_text("en --hybrid true\n")
    options = ("--hybrid", "true", "--stage", "4", "--config", "conf/train_transformer.yaml")
    result = call("bash", folder / "run.sh", *options, cwd=tmp_path)
    assert result.stderr.splitlines()[-1].startswith(
        "error: --hybrid true: conf/train_transformer.yaml would learn the"
    )
