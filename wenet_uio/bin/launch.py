#!/usr/bin/env python3
"""torchrun, with its options, for programs that say themselves what went wrong: a rank's failure is said once.

python -m wenet_uio.bin.launch --standalone --nproc_per_node 2 -m wenet_uio.bin.train --config conf/train.yaml ...
"""

from __future__ import annotations

import logging
import signal
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run


def main() -> int:
    arguments = parse_args(sys.argv[1:])
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run(arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:  # it had no time to say anything
            print(f"error: rank {rank} was ended by {signal.Signals(-failure.exitcode).name}", file=sys.stderr)
        return 1
    except SignalException as stop:
        print(f"stopped by {stop.sigval.name}", file=sys.stderr)
        return 128 + stop.sigval.value
    return 0


if __name__ == "__main__":
    sys.exit(main())
