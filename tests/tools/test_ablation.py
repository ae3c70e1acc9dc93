"""ablation.sh with a recipe whose stages write what a training and a decoding would write."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from functools import partial

import yaml

from tests.support import preloaded
from tests.support.models.recogniser import CONFIG
from tests.tools.test_recipe_verbs import ROOT, call

RECIPE = """#!/usr/bin/env bash
set -euo pipefail
. recipe.sh
stage=4
stop_stage=5
config=
override=
dir=
seed=777
decode_modes=
tests=
avg=best
result_dir=
parse_options "$@"
if stage 4 train; then
  echo "$config $override $seed" >>calls
  [[ ! -e broken || $config != b.yaml ]] || exit 3
  cp model.yaml "$dir/train.yaml"
  touch "$dir/epoch_0.yaml" "$dir/epoch_1.yaml"
  if [[ -e slow ]]; then touch started && while :; do :; done; fi
  [[ ! -e told_to_stop ]] || exit 0
  touch "$dir/final.pt"
  if [[ $config == a.yaml ]]; then touch "$dir/running_9.pt"; fi
fi
if stage 5 score; then
  echo "$dir $tests" >>decoded
  for mode in $decode_modes; do
    out=$result_dir/$mode
    mkdir -p "$out"
    cp "data/$tests/text" "$out/text"
    if [[ $config == a.yaml && $avg == best ]]; then sed -i s/two/too/ "$out/text"; fi
  done
fi
"""


def write_recipe(folder) -> None:
    (folder / "run.sh").write_text(RECIPE)
    (folder / "model.yaml").write_text(yaml.safe_dump(CONFIG))
    (folder / "units.txt").write_text("<blank> 0\n<unk> 1\na 2\n<sos/eos> 3\n")
    (folder / "a.yaml").write_text("model: asr_model\n")
    (folder / "b.yaml").write_text("model: transducer\n")
    for part in ("test", "test_noisy"):
        (folder / "data" / part).mkdir(parents=True)
        (folder / "data" / part / "text").write_text("u1 one two\nu2 three two\nu3 ja\n")
    (folder / "data" / "test" / "utt2lang").write_text("u1 en\nu2 en\nu3 de\n")


def ablation(folder, *arguments: str):
    return call(
        "ablation.sh",
        "--tests",
        "test test_noisy",
        "--decode_modes",
        "greedy",
        *arguments,
        cwd=folder,
    )


def test_each_row_and_seed_is_run_once_and_the_table_has_rates_by_language_with_intervals(tmp_path):
    write_recipe(tmp_path)
    rows = ("a.yaml", "half=b.yaml,max_epoch=1,grad_clip=2")
    (tmp_path / "broken").touch()
    failed = ablation(tmp_path, "--seeds", "1 2", *rows)
    assert failed.returncode == 1
    logs = "exp/ablation/half/seed_1/log exp/ablation/half/seed_2/log"
    assert failed.stderr.splitlines()[-1] == f"error: failed: {logs}"
    (tmp_path / "broken").unlink()
    done = ablation(tmp_path, "--seeds", "1 2", *rows)
    assert done.returncode == 0, done.stderr
    first = [
        "a.yaml  1",
        "b.yaml max_epoch=1 grad_clip=2 1",
        "a.yaml  2",
        "b.yaml max_epoch=1 grad_clip=2 2",
    ]
    assert (tmp_path / "calls").read_text().splitlines() == [*first, first[1], first[3]]
    lines = json.loads((tmp_path / "exp/ablation/table.json").read_text())
    assert [(line["row"], line["mode"], line["epochs"]) for line in lines] == [
        ("a", "greedy", 2),
        ("a, running average", "greedy", 2),
        ("half", "rnnt_greedy_search", 2),
    ]
    assert lines[0]["seeds"].keys() == {"seed_1", "seed_2"}
    assert lines[0]["rates"]["test"]["WER"]["en"] == [50.0, 50.0, 50.0]
    assert lines[0]["rates"]["test"]["WER"]["all"][0] == 40.0
    assert (
        lines[0]["rates"]["test"]["CER"]["de"][0]
        == lines[2]["rates"]["test_noisy"]["WER"]["all"][0]
        == 0
    )
    table = (tmp_path / "exp/ablation/table.md").read_text()
    assert "| half | rnnt_greedy_search |" in table
    assert "| -100.0 %, p " in table
    page = (tmp_path / "exp/ablation/table.html").read_text()
    assert re.findall(r'<span class="line-\d">([^<]+)', page) == ["a", "a, running average", "half"]
    assert "CER of test, %" in page


def test_another_call_decodes_only_what_is_missing_and_its_table_has_the_rows_in_its_order(
    tmp_path,
):
    write_recipe(tmp_path)
    assert ablation(tmp_path, "--seeds", "1", "--tests", "test", "a.yaml").returncode == 0
    rows = ("c=b.yaml,interctc_layer_idx=[2,4],spec={a: 1, b: 2},max_epoch=3", "a.yaml")
    assert ablation(tmp_path, "--seeds", "1", "--tests", "test test_noisy", *rows).returncode == 0
    values = "interctc_layer_idx=[2,4] spec={a: 1, b: 2} max_epoch=3"
    assert (tmp_path / "calls").read_text().splitlines() == ["a.yaml  1", f"b.yaml {values} 1"]
    a, c = (f"exp/ablation/{row}/seed_1" for row in "ac")
    # The running average and the best epochs
    first, both = (
        [f"{a} test"] * 2,
        [f"{a} test_noisy"] * 2,
    )
    assert (tmp_path / "decoded").read_text().splitlines() == [
        *first,
        f"{c} test",
        f"{c} test_noisy",
        *both,
    ]

    def in_table():
        return [
            line["row"] for line in json.loads((tmp_path / "exp/ablation/table.json").read_text())
        ]

    assert in_table() == ["c", "a", "a, running average"]
    before = (tmp_path / "decoded").read_text()
    assert ablation(tmp_path, "--seeds", "1", *rows[::-1]).returncode == 0
    assert in_table() == ["a", "a, running average", "c"]
    assert (tmp_path / "decoded").read_text() == before


def test_a_training_that_was_told_to_stop_is_not_scored_before_it_is_complete(tmp_path):
    write_recipe(tmp_path)
    (tmp_path / "told_to_stop").touch()
    assert ablation(tmp_path, "--seeds", "1", "b.yaml").returncode == 1
    log = (tmp_path / "exp/ablation/b/seed_1/log").read_text()
    assert log.endswith("error: the training was stopped; call ablation.sh again\n")
    (tmp_path / "told_to_stop").unlink()
    assert ablation(tmp_path, "--seeds", "1", "b.yaml").returncode == 0
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_the_cpu_time_before_ctrl_c_counts_and_no_other_row_begins(tmp_path):
    write_recipe(tmp_path)
    (tmp_path / "slow").touch()
    environment = preloaded.on_path()
    environment |= {"PATH": f"{ROOT / 'tools'}:{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    command = ("ablation.sh", "--seeds", "1", "a.yaml", "b.yaml")
    options = {
        "cwd": tmp_path,
        "env": environment,
        "start_new_session": True,
        "stderr": subprocess.PIPE,
    }
    # A suite that runs in the background ignores Ctrl-C, and its processes would inherit that.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, preexec_fn=heed, **options) as run:
        seconds = tmp_path / "exp/ablation/a/seed_1/cpu_seconds"
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(run.pid, signal.SIGINT)
        _, messages = run.communicate(timeout=60)
    assert run.returncode == 1
    assert messages.decode().splitlines()[-1] == "error: stopped; another call goes on here"
    assert sum(map(float, seconds.read_text().split())) > 0.1
    assert (tmp_path / "calls").read_text().splitlines() == ["a.yaml  1"]


def test_a_row_of_another_config_is_not_taken_for_the_row_of_its_name(tmp_path):
    write_recipe(tmp_path)
    assert ablation(tmp_path, "--seeds", "1", "a.yaml").returncode == 0
    (tmp_path / "a.yaml").write_text("model: asr_model\nmax_epoch: 3\n")
    refused = ablation(tmp_path, "--seeds", "1", "a.yaml")
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        "error: exp/ablation/a/seed_1 is of another config or other values; remove it"
    )


def test_wrong_rows_are_one_clear_line(tmp_path):
    write_recipe(tmp_path)
    for rows, message in (
        ((), "name the configs of the rows"),
        (("c.yaml",), "row c.yaml: c.yaml is missing"),
        (("a.yaml", "a=b.yaml"), "two rows are named a: NAME=b.yaml"),
    ):
        result = ablation(tmp_path, *rows)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert message in result.stderr
