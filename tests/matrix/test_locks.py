"""Everything that takes a lock x file systems whose locks differ from those of a local disk.

Each cell is done by two processes at the same time. The file systems are stood in for by a library
that is loaded before that of the system (`tests/support/storage/locks.c`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import preloaded
from tests.support.data.packing import pack
from tests.support.data.read_only import shared_folder
from tests.support.storage import lock_doors
from tests.support.train.training_corpus import write_corpus
from wenet_uio.base.run_files import LEDGER
from wenet_uio.dataset.formats.data_list import parse_raw_line

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests/support/storage/locks.c"
DOORS = [door.__name__ for door in lock_doors.DOORS]
IMPORTED = ("soundfile", "torch._dynamo", "torch.distributed.launcher.api")
TRAIN = "--config train.yaml --cv_data cv.yaml --model_dir exp --device cpu"
Run = Callable[..., subprocess.CompletedProcess[str]]
Answers = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs `python COMMAND` in a folder where locks are of a kind that locks.c names."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the library that stands in for file systems")

    library = tmp_path_factory.mktemp("locks") / "locks.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        python, server = preloaded.start([*IMPORTED, *preloaded.COMMANDS])

    def run_in(folder: Path, locks: str, *command: object) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
        settings = {"LD_PRELOAD": str(library), "LOCKS": locks, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [python, *map(str, command)],
            cwd=folder,
            env={**os.environ, **settings, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    yield run_in
    server.communicate(timeout=preloaded.PATIENCE)
    shutil.rmtree(python.parent)


@pytest.fixture(scope="module")
def answers(run: Run) -> dict[str, Answers]:
    """The answers of the processes by kind of locks; no lock file of a list stays."""
    found = {}
    for locks in ("nfs", "none", "eio"):
        with shared_folder() as folder:
            done = run(folder, locks, SOURCE.with_name("lock_doors.py"), folder)
            assert not done.returncode, done.stderr
            found[locks] = json.loads(done.stdout)
            if locks != "eio":
                assert [path.name for path in folder.rglob("*.lock")] == ["x.lock"]
    return found


@pytest.mark.parametrize("door", DOORS)
def test_on_nfs_two_processes_do_what_takes_a_lock(answers: dict[str, Answers], door: str) -> None:
    first, second = answers["nfs"][door]
    assert "error" not in {*first, *second}, (first, second)
    assert first["result"] == second["result"]
    warnings = first["warnings"] + second["warnings"]
    assert [warning for warning in warnings if "killed process, removed" not in warning] == []


@pytest.mark.parametrize("door", DOORS)
def test_without_locks_each_process_goes_on_after_one_warning(
    answers: dict[str, Answers], door: str
) -> None:
    for answer in answers["none"][door]:
        assert "error" not in answer
        assert answer["result"] == answers["nfs"][door][0]["result"]
        for warning in answer["warnings"]:
            assert re.search(r"/\S+ cannot be locked \(No locks available\): processes", warning)

    # A process that comes late finds everything made, and locks nothing.
    counts = [len(answer["warnings"]) for answer in answers["none"][door]]
    assert max(counts) == 1


@pytest.mark.parametrize("door", DOORS)
def test_a_lock_that_fails_is_an_error_that_names_its_file(
    answers: dict[str, Answers], door: str
) -> None:
    for answer in answers["eio"][door]:
        said = str(answer.get("error") or answer["result"])
        assert re.search(r"Input/output error: '/\S+'", said)


@pytest.mark.parametrize(
    ("locks", "said"), [("nfs", "trains in this folder"), ("none", "cannot be locked")]
)
def test_the_folder_of_a_run_is_held_on_nfs_and_used_with_a_warning_without_locks(
    run: Run, tmp_path: Path, locks: str, said: str
) -> None:
    (tmp_path / "hold.py").write_text("""
import logging, os, sys
from wenet_uio.train.checkpoint import RunFolder
logging.basicConfig()
folder = RunFolder("exp")
folder.hold()
if not os.fork():
    try:
        RunFolder("exp").hold()
    except ValueError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
os.wait()
""")
    done = run(tmp_path, locks, "hold.py")
    assert not done.returncode, done.stderr
    assert said in done.stdout + done.stderr


def training(folder: Path, kind: str, train: str, *options: str) -> list[str]:
    """The command that trains on two ranks."""
    (folder / "cv.yaml").write_text("- {type: raw, data_list: cv.list}\n")
    launcher = ["-m", "wenet_uio.bin.launch", "--standalone", "--nproc_per_node", "2"]
    data = ["--data_type", kind, "--train_data", train]
    return [*launcher, "-m", "wenet_uio.bin.train", *TRAIN.split(), *data, *options]


@pytest.mark.parametrize("kind", ["raw", "shard"])
@pytest.mark.parametrize("locks", ["nfs", pytest.param("none", marks=pytest.mark.all)])
def test_two_ranks_train_from_a_list_without_an_index(
    run: Run, tmp_path: Path, kind: str, locks: str
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    train = "train.list"
    if kind == "shard":
        lines = [parse_raw_line(line) for line in (tmp_path / train).read_bytes().splitlines()]
        pack(lines, tmp_path / "shards", str(tmp_path / "shard.list"))
        train = "shard.list"
        for index in tmp_path.rglob("*.idx"):
            index.unlink()

    done = run(tmp_path, locks, *training(tmp_path, kind, train))
    assert not done.returncode, done.stderr
    assert (tmp_path / "exp" / "final.pt").exists()
    assert not (tmp_path / "exp" / LEDGER).exists()
    assert not list(tmp_path.glob("*.idx.lock"))
    assert ("cannot be locked" in done.stderr) == (locks == "none"), done.stderr


@pytest.mark.parametrize("locks", ["nfs", pytest.param("none", marks=pytest.mark.all)])
def test_two_ranks_read_audio_that_was_away_when_its_list_was_indexed(
    run: Run, tmp_path: Path, locks: str
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    (tmp_path / "train3.wav").rename(tmp_path / "away")
    allowed = ["--override_config", "dataset_conf.max_bad_ratio=0.2"]
    command = training(tmp_path, "raw", "train.list", *allowed)
    done = run(tmp_path, locks, *command, "--model_dir", "first")
    assert not done.returncode, done.stderr
    assert "train3.wav: No such file" in (tmp_path / "first" / LEDGER).read_text()

    (tmp_path / "away").rename(tmp_path / "train3.wav")
    done = run(tmp_path, locks, *command, "--model_dir", "second")
    assert not done.returncode, done.stderr
    assert done.stderr.count("the list is indexed again") == 1
    assert not (tmp_path / "second" / LEDGER).exists()
