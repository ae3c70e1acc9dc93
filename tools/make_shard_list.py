#!/usr/bin/env python3
"""Pack wav.scp and text into tar shards, each with its index, and list them."""

import argparse
import sys

from wenet_uio.cli import run
from wenet_uio.dataset.indexing import UTTERANCES_PER_RUN
from wenet_uio.dataset.kaldi_dir import read_utterances
from wenet_uio.dataset.packing import make_shard_list


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wav_scp", help="lines `key path`")
    parser.add_argument("text", help="lines `key transcript`")
    parser.add_argument("shards_dir", help="folder for the shards")
    parser.add_argument("shards_list", help="list to write, one shard a line")
    parser.add_argument("--num_utts_per_shard", type=int, default=UTTERANCES_PER_RUN, help="default: %(default)s")
    parser.add_argument("--num_threads", "--nj", type=int, default=1, help="processes that pack (default: %(default)s)")
    parser.add_argument(
        "--prefix", default="shards", help="shards are prefix_000000000.tar and on (default: %(default)s)"
    )
    parser.add_argument("--segments", help="lines `key recording start end` in seconds; the cuts are stored as wav")
    parser.add_argument("--resample", type=int, help="store wav at this rate in Hz (default: the files as they are)")
    args = parser.parse_args()
    for name in ("num_utts_per_shard", "num_threads"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be 1 or more, found {getattr(args, name)}")
    utterances = read_utterances(args.wav_scp, args.text, args.segments)
    failures = make_shard_list(
        utterances,
        args.shards_dir,
        args.shards_list,
        prefix=args.prefix,
        per_shard=args.num_utts_per_shard,
        resample_rate=args.resample,
        processes=args.num_threads,
    )
    for key, reason in failures:
        print(f"error: {key}: {reason}", file=sys.stderr)
    print(
        f"{args.shards_list}: {len(utterances) - len(failures)} utterances packed, {len(failures)} failed",
        file=sys.stderr,
    )
    return 1 if failures else 0


if __name__ == "__main__":
    run(main)
