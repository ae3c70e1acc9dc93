#!/usr/bin/env python3
"""torchrun for training: takes the options of torchrun, and leaves it to the ranks to report their
failures.

    %(prog)s --standalone --nproc_per_node 2 \\
        -m wenet_uio.bin.train --config conf/train.yaml …

A SIGTERM or SIGUSR1 is passed on to the ranks. They save their state and exit with 0, and so does
this program. If this program is killed by SIGKILL, the kernel kills its ranks too (on Linux).

Ranks that exit with status 75 (such as after running out of memory) are started again. On several
machines, torchrun starts them again if --max_restarts allows it; otherwise this program exits with
75 and must be started again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import get_args_parser, run

from wenet_uio.base.cli import HelpStyle
from wenet_uio.base.crashes import AGAIN, has_crashed
from wenet_uio.base.options import refuse_unknown_options
from wenet_uio.train.distributed import LAUNCHER, SIGNALS

INTERVAL = 1.0
"""Seconds between signals to the ranks. They are repeated, because a starting rank may miss the
first."""


def parser() -> ArgumentParser:
    """Return the parser of torchrun with the help of this command."""
    parser = get_args_parser()
    parser.description, parser.formatter_class = __doc__, HelpStyle
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ranks until they end; their exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    command_line = parser()
    refuse_unknown_options(command_line, words)
    args = command_line.parse_args(words)
    # At a SIGTERM, torchrun would kill the ranks before they have saved their state.
    ours = {number.name for number in SIGNALS}
    args.signals_to_handle = ",".join(
        name for name in args.signals_to_handle.split(",") if name.strip() not in ours
    )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[LAUNCHER] = str(os.getpid())

    with _Ranks() as ranks:
        status = _run_once(args, ranks)
        while status == AGAIN and args.nnodes in ("1", "1:1"):  # on several machines, torchrun does
            print("starting again from the newest state", file=sys.stderr)
            status = _run_once(args, ranks)
        return status


def _run_once(args: Namespace, ranks: _Ranks) -> int:
    """Start the ranks once and wait for their end; the exit status."""
    try:
        run(args)
    except ChildFailedError as error:
        if AGAIN in (failure.exitcode for failure in error.failures.values()):
            return AGAIN

        rank, failure = error.get_first_failure()
        if ranks.told and -failure.exitcode in SIGNALS:
            print(f"stopped by {ranks.told.name} before training began", file=sys.stderr)
            return 0
        if failure.exitcode < 0:  # killed by a signal, so the rank could not report an error
            print(
                f"error: rank {rank} was killed by {_explain_signal(failure.exitcode)}",
                file=sys.stderr,
            )

        return 1
    except SignalException as end:
        print(f"stopped by {end.sigval.name}", file=sys.stderr)
        return 128 + end.sigval.value
    return 0


def _explain_signal(exitcode: int) -> str:
    """Return the signal that killed a rank, and what it may mean."""
    name = signal.Signals(-exitcode).name
    if has_crashed(exitcode):
        return f"{name}; if a decoder of audio crashed, --num_workers 1 names the sample and leaves it out"
    return f"{name}; did memory run out?" if name == "SIGKILL" else name


class _Ranks:
    """The processes that torchrun started. In the block of `with`, they get one of
    SIGNALS when this program gets it.
    """

    told: signal.Signals | None = None
    """The signal that this program got."""

    def __enter__(self) -> _Ranks:
        for number in (*SIGNALS, signal.SIGALRM):  # the last is of the timer that pass_on sets
            signal.signal(number, self.pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pass_on(self, number: int, _: object) -> None:
        """Send the first signal to all ranks, and set a timer that sends it again."""
        self.told = self.told or signal.Signals(number)
        for children in Path("/proc/self/task").glob("*/children"):
            for pid in children.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), self.told)

        signal.setitimer(signal.ITIMER_REAL, INTERVAL)


if __name__ == "__main__":
    sys.exit(main())
