"""make_lists.sh and compute_cmvn.sh: the options they pass to the tools, and their check of the
environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("make_lists.sh", "compute_cmvn.sh", "recipe.sh", "setup_env.sh", "check_requirements.py")
CALLED = ("make_raw_list.py", "make_shard_list.py", "compute_cmvn_stats.py")


@pytest.fixture
def call(tmp_path):
    """Call a verb in a copy of tools/ whose tools print their arguments; data/train exists."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in COPIED:
        shutil.copy(ROOT / "tools" / name, tools)
    for name in CALLED:
        (tools / name).write_text('#!/bin/sh\necho "${0##*/} $*"\n')
        (tools / name).chmod(0o755)
    for name in ("path.sh", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "ray.txt").touch()
    (tmp_path / "data" / "train").mkdir(parents=True)
    for name in ("wav.scp", "text"):
        (tmp_path / "data" / "train" / name).touch()

    def run(*command: str) -> subprocess.CompletedProcess:
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "WENET_UIO_VENV": str(tmp_path / "data")}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


VERBS = (("make_lists.sh", "--parts", "data/train"), ("compute_cmvn.sh", "--config", "c"))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), "--executor processes --nj "),
        (("--nj", "3"), "--executor processes --nj 3 "),
        (("--executor", "ray"), "--executor ray "),
        (("--executor", "ray", "--nj", "512"), "--executor ray --nj 512 "),
    ],
)
def test_ray_uses_the_whole_cluster_unless_a_number_is_given(call, verb, options, asked):
    done = call(*verb, *options)
    assert done.returncode == 0, done.stderr
    assert asked in done.stdout
    assert ("--nj" in done.stdout) == ("--nj" in asked)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_missing_ray_is_reported_before_the_tool_is_called(call, verb, tmp_path):
    (tmp_path / "requirements" / "ray.txt").write_text("package-that-is-not-there\n")
    assert call(*verb).returncode == 0
    done = call(*verb, "--executor", "ray")
    assert (done.returncode, done.stdout) == (1, "")
    assert "lacks package-that-is-not-there" in done.stderr


def test_parts_are_separated_by_blanks_except_in_quotes(call, tmp_path):
    for folder in ("my data/train *", "it's"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("wav.scp", "text"):
            (tmp_path / folder / name).touch()
    done = call("make_lists.sh", "--parts", "data/train 'my data/train *' \"it's\"")
    assert done.returncode == 0, done.stderr
    parts = ("data/train", "my data/train *", "it's")
    ends = [f" {part}/wav.scp {part}/text {part}/data.list" for part in parts]
    assert all(map(str.endswith, done.stdout.splitlines(), ends)), done.stdout


def test_both_verbs_pass_allow_bad_on(call):
    for verb in VERBS:
        assert "--allow_bad" in call(*verb, "--allow_bad", "true").stdout
        assert "--allow_bad" not in call(*verb).stdout
