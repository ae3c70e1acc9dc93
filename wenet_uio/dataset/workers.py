"""The processes that read batches for one rank. A worker that crashes costs the samples that crash
it, not the run.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from multiprocessing.util import get_temp_dir
from tempfile import gettempdir
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from wenet_uio.base.crashes import be_careful, describe_exit, has_crashed
from wenet_uio.base.memory import NO_SHARED_MEMORY, is_shared_memory_full, return_freed_memory
from wenet_uio.dataset.batch_memory import SharedMemoryError
from wenet_uio.dataset.cursor import Work
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import Batch

SOCKET_PATH = 107 if sys.platform == "linux" else 103
"""Most bytes of the path of a socket."""
LONGEST_FOLDER = SOCKET_PATH - len("/listener-1234567-123-12345678")
"""Most bytes of the folder of multiprocessing's sockets; their names have the number of a process."""
DYING = 0.2
"""Seconds in which a process ends whose pipes are closed already."""
ORPHANED = 1.0
"""Seconds in which a worker notices that its rank was killed."""

log = logging.getLogger(__name__)


class Workers:
    """Reads work in worker processes, or in this process if the options ask for no workers.

    After a crash, new workers read the batches that were in progress again. They are careful
    (`wenet_uio.base.crashes`): a sample that crashes its decoder becomes a bad sample of its batch. Then
    other workers read on as before.
    """

    def __init__(
        self, reader: Dataset, options: LoaderOptions, work: Callable[[], Iterator[Work]]
    ) -> None:
        """Read with `reader`. Each call of `work` gives the work from the first batch that was not
        yielded on.

        Raises:
            ValueError: the path of the folder of temporary files is too long.
        """
        if options.num_workers:
            _require_short_paths()

        self._work = work
        self._in_progress = options.num_workers * options.prefetch
        self._data_loader = partial(
            DataLoader,
            reader,
            batch_size=None,
            num_workers=options.num_workers,
            prefetch_factor=options.prefetch if options.num_workers else None,
            persistent_workers=options.num_workers > 0,
            pin_memory=options.pin_memory and torch.cuda.is_available(),
        )
        self._loader = self._new_loader()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            try:
                yield from _batches(self._loader)
                return
            except GeneratorExit:
                # Also when the interpreter ends, and the module has lost its names
                raise
            except _WorkerEndedError as ended:
                log.warning(
                    "a data worker crashed (%s): reading the batches in progress again, with care",
                    ended,
                )

            self._loader = self._new_loader()  # the other workers of the former loader end
            careful = self._data_loader(
                sampler=_Sampler(self._work, self._in_progress), worker_init_fn=_start_careful
            )
            try:
                yield from _batches(careful)
            except GeneratorExit:
                raise
            except _WorkerEndedError as ended:
                raise ChildProcessError(
                    f"a data worker crashed ({ended}), and not in a decoder of audio: look at "
                    "operators of dataset_conf"
                ) from None

            del careful  # ends its workers

    def _new_loader(self) -> DataLoader:
        return self._data_loader(sampler=_Sampler(self._work), worker_init_fn=_end_with_the_rank)


def _require_short_paths() -> None:
    """Raise a ValueError if workers could not make sockets, through which they hand over memory, in
    the folder of temporary files. They would wait forever.
    """
    too_long = len(os.fsencode(get_temp_dir())) - LONGEST_FOLDER
    if too_long > 0:
        length = len(os.fsencode(gettempdir()))
        raise ValueError(
            f"TMPDIR {gettempdir()}: its path has {length} bytes, and sockets of data workers can be "
            f"made in one of at most {length - too_long}: set TMPDIR to a shorter path, such as /tmp, "
            "or use --num_workers 0"
        )


class _Sampler(Sampler):
    """Hands work to a DataLoader, at most `count` works; None: all of them."""

    def __init__(self, work: Callable[[], Iterator[Work]], count: int | None = None) -> None:
        self._work, self._count = work, count

    def __iter__(self) -> Iterator[Work]:
        return islice(self._work(), self._count)


class _WorkerEndedError(Exception):
    """A worker crashed; the message says how."""


def _batches(loader: DataLoader) -> Iterator[Batch]:
    """Yield the batches of a loader. The death of a worker is an error when the next batch is due.

    torch handles SIGCHLD with a function that raises this error at any place of the main thread. So
    its function is replaced, and ours raises only during the wait for a batch.

    Raises:
        _WorkerEndedError: a worker crashed.
        ChildProcessError: a worker was killed.
        SharedMemoryError: shared memory is full.
    """
    former_handler = signal.getsignal(signal.SIGCHLD)
    in_main_thread = threading.current_thread() is threading.main_thread()

    def on_death(number: int, frame: FrameType | None) -> None:
        _require_alive(loader)
        if callable(former_handler):
            former_handler(number, frame)

    def set_handler(handler: Any) -> None:
        if in_main_thread:  # Python allows it in no other thread
            signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)

    if loader.num_workers and is_shared_memory_full():  # for the semaphores of torch's queues
        raise SharedMemoryError(NO_SHARED_MEMORY)

    if loader.num_workers and loader._iterator is None:
        # Each forked worker would hold a copy of it for as long as it runs
        return_freed_memory()

    try:
        batches = iter(loader)  # sets the function of torch
        set_handler(former_handler)
        while True:
            set_handler(on_death)
            try:
                _require_alive(loader)
                batch = next(batches, None)
            finally:
                set_handler(former_handler)

            if batch is None:
                return

            yield batch
    except GeneratorExit:  # as in Workers.__iter__
        raise
    except (
        RuntimeError,
        ConnectionError,
        EOFError,
    ):
        # Torch raises one of these after the death of a worker
        time.sleep(DYING)
        _require_alive(loader)
        raise
    except (ValueError, OSError) as error:
        _raise_without_stack(error)


def _raise_without_stack(error: Exception) -> NoReturn:
    """Raise an error as it is without workers: torch puts the stack of the worker before its
    message.
    """
    if isinstance(error, SharedMemoryError):
        raise SharedMemoryError(NO_SHARED_MEMORY) from error

    text = str(error)
    if not text.startswith(f"Caught {type(error).__name__} in "):
        raise error

    lines = text.splitlines()
    last_of_stack = max(row for row, line in enumerate(lines) if line.startswith("  "))
    _, _, message = "\n".join(lines[last_of_stack + 1 :]).partition(": ")
    raise type(error)(message) from error


def _require_alive(loader: DataLoader) -> None:
    """Raise an error if a worker has ended."""
    exitcodes = [worker.exitcode for worker in getattr(loader._iterator, "_workers", [])]
    if crash := next(filter(has_crashed, exitcodes), None):
        raise _WorkerEndedError(describe_exit(crash))

    if -signal.SIGKILL in exitcodes:
        raise ChildProcessError(
            "a data worker was killed (SIGKILL), most likely because memory ran out: use fewer "
            "--num_workers, a lower --prefetch or smaller batches"
        )


def _start_careful(number: int) -> None:
    be_careful()
    _end_with_the_rank(number)


def _end_with_the_rank(_: int) -> None:
    """Make a worker ignore SIGUSR1, and SIGTERM unless its rank sent it: a cluster's scheduler may
    signal every process of a job. If the rank is killed, the worker ends, and prints no stack trace.

    torch's own check is not enough: a worker that was killed may have held the lock of the queue of
    batches, and the others would wait for it forever.
    """
    rank = os.getppid()
    show = sys.excepthook

    def show_unless_alone(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, (ConnectionError, EOFError)):
            time.sleep(DYING)
        if os.getppid() == rank:
            show(kind, error, trace)

    # The thread that hands over shared memory calls it.
    sys.excepthook = show_unless_alone

    def wait_for_signal() -> bool:
        """Wait at most ORPHANED seconds; True: the rank has sent SIGTERM."""
        if not hasattr(signal, "sigtimedwait"):  # macOS
            time.sleep(ORPHANED)
            return False
        received = signal.sigtimedwait([signal.SIGTERM], ORPHANED)
        return received is not None and received.si_pid == rank

    def wait_for_end() -> None:
        while os.getppid() == rank and not wait_for_signal():
            pass
        os._exit(0)

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if hasattr(signal, "sigtimedwait"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=wait_for_end, daemon=True).start()
