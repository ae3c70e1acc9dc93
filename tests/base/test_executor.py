import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from wenet_uio.base.crashes import rehearse
from wenet_uio.base.executor import Executor, chunks

ROOT = Path(__file__).parents[2]


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
    assert list(Executor(workers, kind).map(square, range(20), "t", 20)) == [
        number * number for number in range(20)
    ]


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
    with pytest.raises(
        ChildProcessError, match=r"a worker process died \(SIGKILL\).*memory ran out"
    ):
        list(Executor(2).map(die, range(4), "t", 4))


def crash_at_3(number):
    crash = rehearse(lambda: number == 3 and os.kill(os.getpid(), signal.SIGSEGV))
    if crash is None and number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return crash or number


def crash_always(number):
    os.kill(os.getpid(), signal.SIGABRT)


@pytest.mark.third
@pytest.mark.parametrize("workers", [1, 2])
def test_after_a_crash_the_jobs_without_a_result_run_again_in_careful_workers(workers):
    found = list(Executor(workers).map(crash_at_3, range(12), "t", 12))
    assert found == [0, 1, 2, "SIGSEGV", *range(4, 12)]


def test_a_careful_worker_that_crashes_is_an_error():
    with pytest.raises(
        ChildProcessError, match=r"a worker process crashed \(SIGABRT\), and not in a decoder"
    ):
        list(Executor(2).map(crash_always, range(4), "t", 4))


def test_fewer_than_one_worker_is_refused():
    with pytest.raises(ValueError, match="must be 1 or more, found 0"):
        Executor(0)


def test_chunks_hold_every_item():
    assert chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


FORKS = r"""
import os, sys, time
from wenet_uio.base.executor import Executor

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
    parent.wait(60)
    assert parent.stdout.read() == ""  # returns when all processes that could write have ended
    deadline = time.monotonic() + 30
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if is_running(worker)]


def is_running(process):
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


LONG = """
import sys, time
from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor

def main():
    for _ in Executor(2).map(time.sleep, [60, 60, 60], "sleep", 3):
        pass

if __name__ == "__main__":
    print("ready", flush=True)
    run(main)
"""


def test_a_second_ctrl_c_kills_the_workers(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "long.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 30
        while len(workers := psutil.Process(process.pid).children()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None  # it waits for the running jobs
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 130, errors
        assert psutil.wait_procs(workers, timeout=5)[1] == []
    finally:
        process.kill()
