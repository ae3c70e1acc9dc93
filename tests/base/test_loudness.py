"""--quiet, --verbose and --json, over all commands that have them."""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import torch
import yaml

from tests.bin.conftest import folder
from tests.support import preloaded
from wenet_uio import __main__
from wenet_uio.base.messages import PACKAGE, hides_bar, note
from wenet_uio.commands import COMMANDS, parser_of_command

__all__ = ["folder"]

ROOT = Path(__file__).resolve().parents[2]
OWN = [name for name in COMMANDS if name != "launch"]
"""Commands whose options are ours, not those of torchrun."""
WITH_JSON = {
    "extract": "extract shards/shards_000000000.tar",
    "index": "index shard.list --data_type shard",
    "check": "check raw.list --config train.yaml --nj 1",
    "plan": "plan --data_list raw.list --data_type raw --config train.yaml",
    "profile": "profile raw.list --config train.yaml --batches 1 --speed 50 --override_config "
    "dataset_conf.batch_conf.batch_type=static dataset_conf.batch_conf.batch_size=1",
    "average": "average --src_path . --dst_model mean.pt --num 2 --val_best",
    "score": "score ref hyp --compare hyp2 --bootstrap 100",
    "transcribe": "transcribe --model . --checkpoint model.pt --device cpu --pause 0 {keys}",
}
"""A call of every command that has --json."""
OTHERS = {
    "lists": "lists wav.scp ref quiet.list",
    "pack": "pack wav.scp ref quiet_shards quiet_shards.list",
    "cmvn": "cmvn --train_config train.yaml --in_scp wav.scp --out_cmvn global_cmvn",
    "tokens": "tokens ref",
    "bins": "bins raw.list --data_type raw --num_bins 2",
    "recognize": "recognize --config train.yaml --checkpoint model.pt --test_data raw.list "
    "--result_dir out --device cpu --modes ctc_greedy_search",
}
"""Calls of other commands."""


def below(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of the sub-commands, or the parser itself."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.values())
    return [parser]


def without_seconds(text: str) -> str:
    """Remove how long a plan took."""
    return re.sub(r'(seconds"?:? +)[\d.e-]+', r"\1", text)


def has(parser: argparse.ArgumentParser, option: str) -> bool:
    return option in parser._option_string_actions


@pytest.fixture(autouse=True)
def log_of_before(monkeypatch):
    """Loudness is of a process: each call of a test begins with that of a new one."""
    yield
    PACKAGE.setLevel(logging.NOTSET)


@pytest.fixture
def run_folder(folder):
    """A model of two epochs, five utterances with texts and two results, in the current folder."""
    keys = sorted(path.stem for path in folder.glob("*.wav"))
    weights = torch.load("model.pt")
    for epoch in (0, 1):
        torch.save(weights, f"epoch_{epoch}.pt")
        record = {"epoch": epoch, "loss_dict": {"loss": 2.0 - epoch / 10}}
        Path(f"epoch_{epoch}.yaml").write_text(yaml.safe_dump(record))

    Path("wav.scp").write_text("".join(f"{key} {folder}/{key}.wav\n" for key in keys))
    Path("ref").write_text("".join(f"{key} ab\n" for key in keys))
    Path("hyp").write_text("".join(f"{key} ab c\n" for key in keys[:-1]) + "other ab\n")
    Path("hyp2").write_text("".join(f"{key} 语音\n" for key in keys))
    return folder


@pytest.fixture
def call(monkeypatch, capsys, run_folder):
    """A function that runs a command line in this process; returns status, stdout and stderr."""
    keys = " ".join(sorted(path.name for path in run_folder.glob("*.wav")))

    def run(line: str, *options: str) -> tuple[int, str, str]:
        PACKAGE.setLevel(logging.NOTSET)
        words = [*line.format(keys=keys).split(), *options]
        monkeypatch.setattr(sys, "argv", ["wenet-uio", *words])
        streams = sys.stdout, sys.stderr
        with pytest.raises(SystemExit) as end:
            __main__.main()
        sys.stdout, sys.stderr = streams
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.mark.parametrize("name", OWN)
def test_every_command_has_quiet_and_verbose(name):
    for parser in below(parser_of_command(name)):
        assert has(parser, "--quiet")
        assert has(parser, "--verbose")


def test_the_calls_here_are_of_every_command_with_json():
    assert {name for name in OWN if has(parser_of_command(name), "--json")} == set(WITH_JSON)
    readme = (ROOT / "wenet_uio/bin/README.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"With `--json`, which (.+?) have", readme, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) == set(WITH_JSON)


@pytest.mark.parametrize("name", WITH_JSON)
def test_with_json_standard_output_is_json_alone_and_quiet_leaves_standard_error_empty(name, call):
    def no_json(constant: str) -> None:
        raise ValueError(constant)

    status, text, _ = call(WITH_JSON[name])
    assert status == 0
    assert text

    outputs = []
    for options in (["--json"], ["--json", "--quiet"], ["--quiet", "--json"]):
        status, printed, notes = call(WITH_JSON[name], *options)
        assert status == 0
        values = [json.loads(line, parse_constant=no_json) for line in printed.splitlines()]
        assert values
        assert all(isinstance(value, dict) for value in values)
        assert "--quiet" not in options or notes == ""
        outputs.append(without_seconds(printed))

    if name != "profile":  # measures times
        assert outputs[0] == outputs[1] == outputs[2]


def test_the_json_of_a_score_has_the_numbers_of_the_report(call):
    _, report, _ = call(WITH_JSON["score"])
    _, printed, _ = call(WITH_JSON["score"], "--json")
    record = json.loads(printed)
    assert f"Overall -> {record['rate']:.2f} % N={record['words']} C={record['correct']}" in report
    low, high = record["interval"]
    assert f"interval -> {low:.2f} to {high:.2f} %, 100 resamples" in report
    assert f"p = {record['compared']['p']:.3f}" in report
    assert record["errors"] == sum(each["errors"] for each in record["utterances"].values())
    assert record["errors"] == sum(each["errors"] for each in record["scripts"].values())
    assert (len(record["missing"]), record["extra"]) == (1, ["other"])


@pytest.mark.third
@pytest.mark.parametrize("name", [*WITH_JSON, *OTHERS])
def test_quiet_prints_the_same_results_and_nothing_else(name, call):
    line = (WITH_JSON | OTHERS)[name]
    status, results, _ = call(line)
    quiet_status, quiet_results, notes = call(line, "--quiet")
    assert (status, quiet_status) == (0, 0)
    assert notes == ""
    if name not in ("profile", "recognize"):  # measure times
        assert without_seconds(quiet_results) == without_seconds(results)


def test_quiet_prints_warnings_and_errors(call):
    status, _, printed = call("average --src_path . --dst_model mean.pt --num 9 --quiet")
    assert status == 0
    assert printed.startswith("warning: --num 9, but only 2 to average")

    status, _, printed = call("check none.list --quiet")
    assert status == 1
    assert printed.startswith("error: ")


def test_quiet_and_verbose_exclude_each_other(call):
    status, _, printed = call("check raw.list --quiet --verbose")
    assert status == 2
    assert "not allowed with argument --quiet" in printed


def test_verbose_prints_debug_lines_with_times_and_where_an_error_comes_from(run_folder):
    command = [preloaded.python(), "-m", "wenet_uio", "check", "raw.list", "--config", "train.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def done(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options], env=environment, capture_output=True, text=True, cwd=run_folder
        )

    plain, verbose = done("--nj", "1"), done("--nj", "1", "--verbose")
    assert verbose.returncode == plain.returncode == 0
    assert verbose.stdout == plain.stdout
    assert plain.stderr == ""
    lines = verbose.stderr.splitlines()
    assert [
        line for line in lines if not re.match(r"\d{4}-\d\d-\d\d [\d:,]+ \w+ wenet_uio\S*: ", line)
    ] == []
    assert "wenet_uio.base.cli: wenet_uio " in lines[0]
    assert any("train.yaml" in line for line in lines[1:])

    failed, explained = done("--units", "none"), done("--units", "none", "--verbose")
    assert failed.returncode == explained.returncode == 1
    assert "Traceback" not in failed.stderr
    assert failed.stderr.strip() in explained.stderr
    assert "Traceback" in explained.stderr


def printed_on_a_terminal(folder: Path, *arguments: str) -> str:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = subprocess.Popen(
        [preloaded.python(), "-m", "wenet_uio", *arguments],
        stdin=its, stdout=its, stderr=its, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(its)
    printed = b""
    while True:
        try:
            printed += os.read(ours, 65536)
        except OSError:  # the command has ended
            break

    assert process.wait(60) == 0, printed
    os.close(ours)
    return printed.decode()


def test_quiet_shows_no_progress_bar_on_a_terminal(run_folder):
    pack = ["pack", "wav.scp", "ref", "shards2", "shards2.list", "--nj", "1"]
    assert "pack: 100%" in printed_on_a_terminal(run_folder, *pack)
    shutil.rmtree("shards2")
    assert printed_on_a_terminal(run_folder, *pack, "--quiet") == ""


def test_every_bar_asks_whether_it_is_shown():
    with_bars = [
        path
        for path in (ROOT / "wenet_uio").rglob("*.py")
        if re.search(r"\btqdm\(", path.read_text())
    ]
    assert len(with_bars) > 5
    for path in with_bars:
        assert re.search(r"\b(hides_bar|is_quiet)\(\)", path.read_text()), path
        assert "disable=None" not in path.read_text(), path


def test_the_level_of_the_log_of_the_package_silences_notes_and_bars_of_python_code_too(capsys):
    note("read")
    assert hides_bar() is None
    PACKAGE.setLevel(logging.WARNING)
    note("not read")
    assert hides_bar() is True
    assert capsys.readouterr() == ("", "read\n")
