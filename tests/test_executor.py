import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.ray_cluster import ray_cluster
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.crashes import rehearse
from wenet_uio.executor import Executor, chunks
from wenet_uio.prepare.cmvn_stats import cmvn_statistics
from wenet_uio.prepare.list_making import make_shard_list
from wenet_uio.prepare.sharding import ShardOptions, parse_size

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def on_ray():
    """Stop all processes of Ray after the tests."""
    ray = pytest.importorskip("ray")
    yield
    ray.shutdown()


def square(number):
    time.sleep(0.02 * (number % 3))  # later jobs end before earlier ones
    return number * number


def fail(number):
    if number == 3:
        raise ValueError("three")
    return number


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("workers", [None, 1, 3])
def test_results_come_in_the_order_of_the_jobs(workers, kind):
    assert list(Executor(workers, kind).map(square, range(20), "t", 20)) == [number * number for number in range(20)]


def test_the_number_of_submitted_jobs_is_limited():
    taken = []

    def jobs():
        for number in range(100):
            taken.append(number)
            yield number

    results = Executor(2).map(square, jobs(), "t", 100)
    for number in range(10):
        next(results)
        assert len(taken) <= number + 1 + 2 * 2
    results.close()


def test_an_error_of_a_job_is_raised_in_place_of_its_result():
    results = Executor(2).map(fail, range(10), "t", 10)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(ChildProcessError, match=r"a worker process died \(SIGKILL\).*memory ran out"):
        list(Executor(2).map(die, range(4), "t", 4))


def crash_at_3(number):
    crash = rehearse(lambda: number == 3 and os.kill(os.getpid(), signal.SIGSEGV))
    if crash is None and number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return crash or number


def crash_always(number):
    os.kill(os.getpid(), signal.SIGABRT)


@pytest.mark.parametrize("workers", [1, 2])
def test_after_a_crash_the_jobs_without_a_result_run_again_in_careful_workers(workers):
    found = list(Executor(workers).map(crash_at_3, range(12), "t", 12))
    assert found == [0, 1, 2, "SIGSEGV", *range(4, 12)]


def test_a_careful_worker_that_crashes_is_an_error():
    with pytest.raises(ChildProcessError, match=r"a worker process crashed \(SIGABRT\), and not in a decoder"):
        list(Executor(2).map(crash_always, range(4), "t", 4))


def test_fewer_than_one_worker_is_refused():
    with pytest.raises(ValueError, match="must be 1 or more, found 0"):
        Executor(0)


def test_chunks_hold_every_item():
    assert chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


FORKS = r"""
import os, sys, time
from wenet_uio.executor import Executor

def job(number):
    os.write(1, f"{os.getpid()}\n".encode())
    time.sleep(60)

if __name__ == "__main__":
    list(Executor(3).map(job, range(6), "t", 6))
"""


def test_workers_end_when_their_parent_is_killed(tmp_path):
    (tmp_path / "forks.py").write_text(FORKS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "forks.py")]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    workers = [int(parent.stdout.readline()) for _ in range(3)]
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == ""  # returns when all processes that could write have ended
    deadline = time.monotonic() + 30
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if is_running(worker)]


def is_running(process):
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_ray_runs_the_same_functions_and_raises_the_same_errors(on_ray):
    executor = Executor(kind="ray")
    assert list(executor.map(parse_size, ["1KB", "2MB", "3GiB"], "t", 3)) == [1000, 2_000_000, 3 * 2**30]
    with pytest.raises(ValueError, match="such as 500MB") as caught:
        list(executor.map(parse_size, ["1KB", "many"], "t", 2))
    assert type(caught.value) is ValueError
    squares = executor.map(lambda number: number * number, range(50), "t", 50)
    assert list(squares) == [number * number for number in range(50)]


def test_a_dead_ray_worker_is_an_error(on_ray):
    with pytest.raises(ChildProcessError, match="a Ray worker died"):
        list(Executor(kind="ray").map(lambda status: os._exit(status), [1], "t", 1))


def test_after_a_crash_of_a_ray_worker_the_job_runs_again_in_a_careful_worker(on_ray):
    executor = Executor(2, "ray")
    assert list(executor.map(crash_at_3, range(5), "t", 5)) == [0, 1, 2, "SIGSEGV", 4]


def test_packing_on_ray_gives_the_same_bytes(on_ray, make_utterances, tmp_path):
    lines = make_utterances(12)
    packed = []
    for executor in (Executor(), Executor(kind="ray")):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        make_shard_list(lines, tmp_path / "s", str(tmp_path / "list"), ShardOptions(per_shard=4, seed=0), executor)
        packed.append({path.name: path.read_bytes() for path in (tmp_path / "s").iterdir() if path.is_file()})
    assert packed[0] == packed[1]
    assert len(packed[0]) == 6


def test_statistics_on_ray_are_the_same(on_ray, make_utterances):
    lines = make_utterances(70)
    conf = DatasetConf()
    assert cmvn_statistics(lines, conf, Executor(kind="ray")) == cmvn_statistics(lines, conf, Executor(2))


def test_a_folder_that_is_missing_on_the_cluster_is_named(on_ray, monkeypatch):
    executor = Executor(kind="ray")
    assert list(executor.map(parse_size, ["1KB"], "t", 1)) == [1000]
    monkeypatch.setattr(os, "getcwd", lambda: "/nowhere")
    with pytest.raises(ValueError, match="^/nowhere, the current folder, does not exist on .* all machines"):
        list(executor.map(parse_size, ["1KB"], "t", 1))


def test_a_cluster_that_refuses_the_connection_is_named_with_a_hint(monkeypatch):
    ray = pytest.importorskip("ray")

    def refuse(**_):
        raise ConnectionError("Failed to connect to Ray cluster at host0:6379")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    hint = "at host0:6379: check that a cluster runs .*RAY_ADDRESS.*RAY_AUTH_MODE=token"
    with pytest.raises(ConnectionError, match=hint):
        list(Executor(kind="ray").map(parse_size, ["1KB"], "t", 1))


def test_relative_paths_are_relative_to_the_folder_of_the_caller(make_utterances, tmp_path):
    pytest.importorskip("ray")
    lines = make_utterances(5)
    (tmp_path / "wav.scp").write_text("".join(f"{line.key} wav/{Path(line.wav).name}\n" for line in lines))
    (tmp_path / "text").write_text("".join(f"{line.key} {line.text}\n" for line in lines))
    (tmp_path / "train.yaml").write_text("dataset_conf: {}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ray_cluster(elsewhere) as joining:
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | joining
        for tool, *options in (
            ("make_shard_list.py", "--num_utts_per_shard", "2", "wav.scp", "text", "shards", "shard.list"),
            ("make_raw_list.py", "wav.scp", "text", "raw.list"),
            ("compute_cmvn_stats.py", "--train_config", "train.yaml", "--in_scp", "wav.scp", "--out_cmvn", "cmvn"),
        ):
            command = [sys.executable, str(ROOT / "tools" / tool), "--executor", "ray", *options]
            called = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert called.returncode == 0, called.stderr
    assert list(elsewhere.iterdir()) == []
    listed = (tmp_path / "shard.list").read_text().splitlines()
    assert listed == [f"shards/shards_00000000{number}.tar" for number in range(3)]
    assert all((tmp_path / shard).is_file() for shard in listed)
    assert (tmp_path / "raw.list").read_text().startswith('{"key": "utt0000", "wav": "wav/utt0000.wav"')
    assert json.loads((tmp_path / "cmvn").read_text())["frame_num"] > 0
