"""pseudo_label.sh with untrained models, in a recipe whose stage 4 writes what a training would
write.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from tests.bin.conftest import folder  # noqa: F401 - a fixture
from tests.support import preloaded
from tests.support.models.small_whisper import write_openai
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.tools.test_recipe_verbs import ROOT, call
from wenet_uio.text.normalize import english

RECIPE = """#!/usr/bin/env bash
set -euo pipefail
. recipe.sh
stage=4
stop_stage=5
config=
override=
data_type=raw
bpe=
dir=
parse_options "$@"
echo "$config $override $bpe" >>calls
[[ ! -e broken ]] || exit 3
mkdir -p "$dir"
cp train.yaml "$dir/train.yaml"
cp model.pt "$dir/epoch_0.pt"
echo "{epoch: 0, loss_dict: {loss: 1.0}}" >"$dir/epoch_0.yaml"
[[ -e told_to_stop ]] || cp model.pt "$dir/final.pt"
"""
OPTIONS = (
    "--unlabelled",
    "raw.list",
    "--labelled",
    "raw.list",
    "--decode_mode",
    "ctc_greedy_search",
)


@pytest.fixture
def recipe(folder):  # noqa: F811
    """A recipe with two untrained models that are one."""
    for name in ("one", "two"):
        Path(name).mkdir()
        Path(name, "train.yaml").write_bytes(Path("train.yaml").read_bytes())
        Path(name, "avg.pt").write_bytes(Path("model.pt").read_bytes())
    Path("run.sh").write_text(RECIPE)
    return folder


def label(recipe, *options):
    return call("pseudo_label.sh", *OPTIONS, "--teacher", "one", *options, cwd=recipe)


def stamps(where):
    return {
        path: path.stat().st_mtime_ns
        for path in Path(where).rglob("*")
        if path.is_file() and path.name not in ("decoding", "choosing")
    }


def test_iterations_label_and_train_and_a_second_call_repeats_no_step(recipe):
    options = (
        "--second",
        "two",
        "--max_cer",
        "0",
        "--share",
        "0.5",
        "--config",
        "train.yaml",
        "--iterations",
        "2",
    )
    options += ("--recipe_options", "--bpe 100")
    Path("broken").touch()
    assert label(recipe, *options).returncode == 3
    Path("broken").unlink()
    Path("told_to_stop").touch()
    stopped = label(recipe, *options)
    message = (
        "error: the training of exp/pseudo/iter_1/model was stopped; call pseudo_label.sh again"
    )
    assert (stopped.returncode, stopped.stderr.splitlines()[-1]) == (1, message)
    shutil.rmtree("exp/pseudo/iter_1/model")
    Path("told_to_stop").unlink()
    before = stamps("exp/pseudo")
    assert Path("exp/pseudo/iter_1/mixture.yaml") in before
    Path("exp/pseudo/iter_1/data.list.json").unlink()  # as if the step was killed
    done = label(recipe, *options)
    assert done.returncode == 0, done.stderr
    steps = [line.split()[-1] for line in done.stderr.splitlines() if " exp/pseudo/" in line]
    first = [f"exp/pseudo/iter_1/{name}" for name in ("data.list.json", "model/avg.pt")]
    second = [
        f"exp/pseudo/iter_2/{name}"
        for name in (
            *("first/parts/0000/skipped", "data.list.json", "mixture.yaml", "model/avg.pt"),
        )
    ]
    assert steps[:-1] == [*first, *second]
    unchanged = [path for path in before if not path.name.startswith("data.list")]
    assert {path: stamps("exp/pseudo")[path] for path in unchanged} == {
        path: before[path] for path in unchanged
    }
    trainings = [
        f"train.yaml  data='exp/pseudo/iter_{number}/mixture.yaml' 100" for number in (1, 1, 1, 2)
    ]
    assert Path("calls").read_text().splitlines() == trainings
    counts = json.loads(Path("exp/pseudo/iter_1/data.list.json").read_text())
    assert (
        counts["kept"]["utterances"]
        + counts["left_out"].get("empty", {"utterances": 0})["utterances"]
        == 5
    )
    after = stamps("exp/pseudo")
    assert label(recipe, *options).returncode == 0
    assert stamps("exp/pseudo") == after


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_what_is_no_data_list_is_refused_before_any_work(recipe, kind):
    if kind == "folder":
        Path("speech").mkdir()
    else:
        Path("speech").write_text("a\ta.wav\n")
    done = label(recipe, "--unlabelled", "speech")
    assert done.returncode == 1
    assert done.stderr.startswith("error: --unlabelled speech: ")
    assert done.stderr.count("\n") == 1
    assert not Path("exp").exists()


def test_shards_are_labelled_and_nothing_is_trained_without_a_config(recipe):
    options = (
        "--data_type",
        "shard",
        "--unlabelled",
        "shard.list",
        "--labelled",
        "shard.list",
        "--max_rate",
        "1000",
    )
    done = label(recipe, *options)
    assert done.returncode == 0, done.stderr
    assert all(
        "\t" in line for line in Path("exp/pseudo/iter_1/data.list").read_text().splitlines()
    )
    assert not Path("calls").exists()


def test_results_of_other_options_are_not_taken(recipe):
    Path("exp/pseudo").mkdir(parents=True)
    Path("exp/pseudo/decoding").write_text("raw other\n")
    refused = label(recipe)
    assert refused.returncode == 1
    assert refused.stderr.strip() == (
        "error: exp/pseudo has results of other models, files or decoding options; remove it, or "
        "give another --dir"
    )


@pytest.mark.all
def test_other_limits_choose_again_without_decoding_until_a_model_is_trained(recipe):
    wrong = label(recipe, "--min_confidence", "90")
    assert wrong.returncode == 1
    assert (
        wrong.stderr.splitlines()[-1]
        == "error: min_confidence: expected a number from 0 to 1, found 90.0"
    )
    before = stamps("exp/pseudo/iter_1/first")
    done = label(recipe, "--min_confidence", "0.001")
    assert done.returncode == 0, done.stderr
    assert stamps("exp/pseudo/iter_1/first") == before
    assert (
        json.loads(Path("exp/pseudo/iter_1/data.list.json").read_text())["limits"]["min_confidence"]
        == 0.001
    )
    assert label(recipe, "--min_confidence", "0").returncode == 0
    assert (
        json.loads(Path("exp/pseudo/iter_1/data.list.json").read_text())["limits"]["min_confidence"]
        == 0
    )
    Path("exp/pseudo/iter_1/model").mkdir()
    refused = label(recipe, "--min_confidence", "0.1")
    assert refused.stderr.strip() == (
        "error: exp/pseudo/iter_1/model was trained with other options; give another --dir"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--iterations", "2"), "--iterations 2 needs --config"),
        (("--iterations", "0"), "--iterations 0: expected a number of at least 1"),
        (("--max_cer", "5"), "--max_cer and --second_mode need --second"),
        (("--unlabelled", "missing.list"), "missing.list is missing"),
        (("--teacher", "three"), "three is missing"),
    ],
)
def test_wrong_options_are_one_line(recipe, options, message):
    refused = label(recipe, *options)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: {message}")
    assert len(refused.stderr.splitlines()) == 1
    assert not Path("exp").exists()


def test_help_lists_the_options(recipe):
    shown = label(recipe, "--help")
    assert shown.returncode == 0
    assert "--min_confidence" in shown.stdout
    assert os.linesep + "  --share" in shown.stdout


@pytest.mark.all
def test_a_whisper_labels_for_a_student_and_a_killed_labelling_goes_on_with_its_part(recipe):
    teacher = str(write_openai(recipe / "sources/whisper.pt"))
    write_full_vocabulary(recipe / "sources/multilingual.tiktoken")
    options = ("--teacher", teacher, "--unlabelled", "raw.list", "--labelled", "none")
    options += ("--part", "2", "--text", "english", "--max_repeats", "", "--max_rate", "")
    options += ("--decode_options", "--beam_size 1 --language en")
    killed = start("pseudo_label.sh", *options, "--dir", "exp/killed", cwd=recipe)
    wait_for(Path("exp/killed/iter_1/first/parts/0000/skipped"), killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not Path("exp/killed/iter_1/first/skipped").exists()
    before = stamps("exp/killed")

    runs = {}
    for run in ("killed", "whole"):
        runs[run] = call("pseudo_label.sh", *options, "--dir", f"exp/{run}", cwd=recipe)
        assert runs[run].returncode == 0, runs[run].stderr
    after = stamps("exp/killed")
    kept = [path for path in before if path.parts[-2] == "teacher" or "0000" in path.parts]
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    for name in ("first/attention/nbest.jsonl", "first/skipped", "data.list", "data.list.json"):
        contents = [Path(f"exp/{run}/iter_1/{name}").read_bytes() for run in runs]
        assert contents[0] == contents[1], name

    counts = json.loads(Path("exp/whole/iter_1/data.list.json").read_text())
    left_out = sum(reason["utterances"] for reason in counts["left_out"].values())
    assert counts["kept"]["utterances"] + left_out == counts["utterances"] == 5
    assert f"{counts['kept']['utterances']} of 5 utterances get a label" in runs["whole"].stdout
    for line in Path("exp/whole/iter_1/data.list").read_text().splitlines():
        text = json.loads(line)["txt"]
        assert text == english(text)
    nbests = Path("exp/whole/iter_1/first/attention/nbest.jsonl").read_text().splitlines()
    confidences = [json.loads(line)["hypotheses"][0]["confidence"] for line in nbests]
    assert all(0 <= confidence <= 1 for confidence in confidences)
    assert not Path("exp/whole/iter_1/mixture.yaml").exists()


@pytest.mark.all
def test_a_teacher_that_was_changed_is_converted_again_and_its_old_results_are_refused(recipe):
    teacher = recipe / "sources/whisper.pt"
    write_openai(teacher)
    write_full_vocabulary(recipe / "sources/multilingual.tiktoken")
    found = [call_teacher(teacher) for _ in range(2)]
    assert found[0] == found[1] == ["exp/t/train.yaml", "exp/t/final.pt", "attention"]
    made = Path("exp/t/final.pt").stat().st_mtime_ns

    checkpoint = torch.load(teacher, weights_only=True)
    checkpoint["model_state_dict"]["decoder.ln.bias"] += 1
    torch.save(checkpoint, teacher)
    call_teacher(teacher)
    assert Path("exp/t/final.pt").stat().st_mtime_ns > made
    assert call_teacher(recipe / "one") == ["one/train.yaml", "one/avg.pt", "attention_rescoring"]


def call_teacher(model):
    done = call("pseudo_lists.py", "teacher", os.path.relpath(model), "exp/t", cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def start(*command, cwd):
    """Start a shell script in a process group of its own."""
    environment = preloaded.on_path()
    environment |= {"PATH": f"{ROOT / 'tools'}:{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, f"{path} was not written"
        time.sleep(0.05)
