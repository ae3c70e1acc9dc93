import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.data.tars import wav, write_tar

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "index_data.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def index_data(*arguments):
    return preloaded.run([TOOL, *arguments], env=ENVIRONMENT)


@pytest.fixture
def foreign(tmp_path):
    """A list of shards of another tool, without indexes."""

    def make(shards, per_shard=3):
        audio = wav(0.3)
        for number in range(shards):
            names = [f"utt{number:03d}_{part}" for part in range(per_shard)]
            members = [
                item
                for name in names
                for item in ((f"{name}.json", '{"text": "a"}'), (f"{name}.wav", audio))
            ]
            write_tar(tmp_path / f"set-{number:03d}.tar", members)
        (tmp_path / "set.list").write_text(f"{tmp_path}/set-*.tar\n")
        return tmp_path

    return make


def test_shards_of_another_tool_are_indexed_in_parallel(foreign):
    folder = foreign(5)
    done = index_data(folder / "set.list", "--data_type", "shard", "--nj", 2)
    assert (done.returncode, done.stdout) == (
        0,
        f"{folder}/set.list: 15 utterances, 0.00 h, 0 bad\n",
    )
    assert len(list(folder.glob("set-*.tar.idx"))) == 5


def test_bad_samples_are_listed_and_the_status_is_1(foreign):
    folder = foreign(3)
    tar = folder / "set-001.tar"
    tar.write_bytes(tar.read_bytes()[:9000])
    done = index_data(folder / "set.list", "--data_type", "shard")
    assert done.returncode == 1
    assert "7 utterances, 0.00 h, 3 bad" in done.stdout
    assert "bad: utt001_1.wav: cut short" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_after_a_killed_run_indexes_the_missing_shards(foreign):
    folder = foreign(200, per_shard=10)
    command = [
        sys.executable,
        str(TOOL),
        str(folder / "set.list"),
        "--data_type",
        "shard",
        "--nj",
        "2",
    ]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, start_new_session=True, stderr=subprocess.DEVNULL
    )
    while not list(folder.glob("set-*.tar.idx")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    made = {path: path.stat().st_mtime_ns for path in folder.glob("set-*.tar.idx")}
    assert 0 < len(made) < 200
    assert not (folder / "set.list.idx").exists()
    done = index_data(folder / "set.list", "--data_type", "shard", "--nj", 2)
    assert "2000 utterances" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_every_list_of_a_mixture_is_indexed(foreign, tmp_path):
    folder = foreign(2)
    (tmp_path / "a.wav").write_bytes(wav(0.5))
    (tmp_path / "raw.list").write_text(f'{{"key": "a", "wav": "{tmp_path}/a.wav", "txt": "x"}}\n')
    (tmp_path / "mix.yaml").write_text(
        f"- {{type: shard, data_list: {folder}/set.list}}\n- "
        f"{{type: raw, data_list: {tmp_path}/raw.list}}\n"
    )
    done = index_data(tmp_path / "mix.yaml")
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == [
        "6 utterances, 0.00 h, 0 bad",
        "1 utterances, 0.00 h, 0 bad",
    ]


def test_a_list_without_its_type_is_asked_for_it(foreign):
    done = index_data(foreign(1) / "set.list")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "--data_type raw or shard" in done.stderr
