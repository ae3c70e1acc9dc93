import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wenet_uio.executor import Executor, chunks

ROOT = Path(__file__).parents[1]


def square(number):
    time.sleep(0.02 * (number % 3))  # later jobs end before earlier ones
    return number * number


def fail(number):
    if number == 3:
        raise ValueError("three")
    return number


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [None, 1, 3])
def test_results_come_in_the_order_of_the_jobs(workers):
    assert list(Executor(workers).map(square, range(20), "t", 20)) == [number * number for number in range(20)]


def test_no_more_jobs_are_taken_than_may_wait():
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


def test_an_error_of_a_job_is_raised_where_its_result_is_taken():
    results = Executor(2).map(fail, range(10), "t", 10)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(ChildProcessError, match="a worker process died"):
        list(Executor(2).map(die, range(4), "t", 4))


def test_fewer_than_one_worker_is_refused():
    with pytest.raises(ValueError, match="must be 1 or more, found 0"):
        Executor(0)


def test_chunks_hold_every_item():
    assert chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


FORKS = """
import os, sys, time
from wenet_uio.executor import Executor

def job(number):
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    list(Executor(3).map(job, range(6), "t", 6))
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "forks.py").write_text(FORKS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "forks.py")]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    workers = [int(parent.stdout.readline()) for _ in range(3)]
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == ""  # ends when the last process that could write has ended
    for worker in workers:
        status = Path(f"/proc/{worker}/stat")
        assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
