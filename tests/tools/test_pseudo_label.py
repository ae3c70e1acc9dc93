"""pseudo_label.sh with untrained models, in a recipe whose stage 4 writes what a training would
write.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.bin.conftest import folder  # noqa: F401 - a fixture
from tests.tools.test_recipe_verbs import call

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
    return call("pseudo_label.sh", *OPTIONS, "--model", "one", *options, cwd=recipe)


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
        for name in ("first/skipped", "data.list.json", "mixture.yaml", "model/avg.pt")
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
        (("--model", "three"), "three/train.yaml is missing"),
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
