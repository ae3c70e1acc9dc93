"""Run jobs in threads, in processes of this machine, or on a Ray cluster.

Results come in the order of the jobs, and the number of jobs in progress is limited. Worker processes end when their
parent is killed. On Ray, the package is sent to the machines; audio files and the current folder must have the same
paths on all machines.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as Pool
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, TypeVar

from tqdm import tqdm

Job = TypeVar("Job")
Result = TypeVar("Result")
Lane = tuple[Callable[[Any], Any], Callable[[Any], Any], int]
"""(submit a job, wait for the result of a submitted job, number of jobs that run at once)."""


@dataclass(frozen=True)
class Executor:
    """Maps a function over jobs, in the same way for threads, processes and Ray."""

    workers: int | None = None
    """Jobs that run at once; None: 1, or on Ray one for each CPU of the cluster."""
    kind: Literal["threads", "processes", "ray"] = "processes"

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"the number of workers must be 1 or more, found {self.workers}")

    def map(
        self,
        function: Callable[[Job], Result],
        jobs: Iterable[Job],
        title: str,
        total: int,
        size: Callable[[Job], int] = lambda job: 1,
        unit: str = "utt",
    ) -> Iterator[Result]:
        """Yield the results in the order of `jobs`. At most 2 * `workers` jobs run or have results that wait here.

        Args:
            function: a function that workers can import (a top-level function of a module).
            title: text of the progress bar.
            total: sum of `size` over the jobs, for the progress bar.
            size: what a job adds to the progress bar.
            unit: unit of `size`.

        Raises:
            ChildProcessError: a worker died.
            Exception: any exception of `function` is raised here; no further job is submitted.
        """
        lane = _ray if self.kind == "ray" else _threads if self.kind == "threads" else _processes
        waiting: deque[tuple[int, Any]] = deque()
        with lane(function, self.workers) as (submit, result, workers), _bar(title, total, unit) as bar:

            def next_result() -> Result:
                done, handle = waiting.popleft()
                value = result(handle)
                bar.update(done)
                return value

            for job in jobs:
                if len(waiting) >= 2 * workers:
                    yield next_result()
                waiting.append((size(job), submit(job)))
            while waiting:
                yield next_result()


def add_executor_options(parser: argparse.ArgumentParser, *names: str, otherwise: str = "1 process") -> None:
    """Add the options that `executor_of` reads: the number of workers, called `names`, and --executor.

    Args:
        otherwise: the default number of workers, for `--help`.
    """
    parser.add_argument(
        *names,
        dest="workers",
        type=int,
        help=f"processes, or jobs at once on Ray (default: {otherwise}; on Ray, one for each CPU of the cluster)",
    )
    parser.add_argument(
        "--executor",
        choices=("processes", "ray"),
        default="processes",
        help="where jobs run; ray uses the cluster in RAY_ADDRESS, or starts one on this machine. With ray, the files "
        "and the current folder must have the same paths on all machines (default: %(default)s)",
    )


def executor_of(args: argparse.Namespace, otherwise: Executor | None = None) -> Executor:
    """The executor of the parsed options; `otherwise` if they are absent."""
    if otherwise and args.workers is None and args.executor == "processes":
        return otherwise
    return Executor(args.workers, args.executor)


def chunks(items: list[Job], length: int) -> list[list[Job]]:
    """Split into lists of `length` items; the last list may be shorter."""
    return [items[first : first + length] for first in range(0, len(items), length)]


def _bar(title: str, total: int, unit: str) -> tqdm:
    return tqdm(None, title, total, unit=unit, disable=None)


def _threads(function: Callable, workers: int | None) -> AbstractContextManager[Lane]:
    return _pool(ThreadPoolExecutor(workers or 1), function, workers or 1)


def _processes(function: Callable, workers: int | None) -> AbstractContextManager[Lane]:
    return _pool(ProcessPoolExecutor(workers or 1, initializer=_follow_parent), function, workers or 1)


@contextmanager
def _pool(pool: Pool, function: Callable, workers: int) -> Iterator[Lane]:
    def result(future: Any) -> Any:
        try:
            return future.result()
        except BrokenProcessPool:
            raise ChildProcessError(
                "a worker process died, most likely because memory ran out; run again with fewer workers"
            ) from None

    try:
        yield lambda job: pool.submit(function, job), result, workers
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """Initialise a worker: ignore Ctrl-C, which the parent handles, and exit when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(function: Callable, workers: int | None) -> Iterator[Lane]:
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ModuleNotFoundError:
        raise ValueError("--executor ray needs Ray: pip install ray") from None
    import wenet_uio

    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, runtime_env={"py_modules": [wenet_uio]})
        except ConnectionError as error:
            raise ConnectionError(
                f"{error}: check that a cluster runs there (RAY_ADDRESS), and whether it needs RAY_AUTH_MODE=token"
            ) from None
    folder = Path.cwd()

    def in_folder(job: Any) -> Any:
        # Workers start in the folder of `ray start`; relative paths are relative to the folder of the caller.
        try:
            os.chdir(folder)
        except OSError as error:
            raise ValueError(
                f"{folder}, the current folder, does not exist on {socket.gethostname()} of the Ray cluster "
                f"({error.strerror}): run the command in a folder that has the same path on all machines"
            ) from None
        return function(job)

    task = ray.remote(in_folder)

    def result(reference: Any) -> Any:
        try:
            return ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise ChildProcessError(f"a Ray worker died: {' '.join(str(error).split())}") from None

    yield task.remote, result, workers or int(ray.cluster_resources().get("CPU", 0)) or 1
