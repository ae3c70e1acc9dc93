#!/usr/bin/env python3
"""Make a raw data list (JSON lines) and its index from wav.scp and text."""

import argparse
import sys

from wenet_uio.cli import run
from wenet_uio.dataset.indexing import UTTERANCES_PER_RUN
from wenet_uio.dataset.kaldi_dir import read_utterances
from wenet_uio.dataset.packing import make_raw_list


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wav_scp", help="lines `key path`")
    parser.add_argument("text", help="lines `key transcript`")
    parser.add_argument("data_list", help="list to write; its index goes beside it, as data_list.idx")
    parser.add_argument("--segments", help="lines `key recording start end` in seconds; wav.scp then names recordings")
    parser.add_argument(
        "--num_utts_per_shard",
        type=int,
        default=UTTERANCES_PER_RUN,
        help="lines that the plan treats as one shard; with that of make_shard_list.py both give the same batches "
        "(default: %(default)s)",
    )
    args = parser.parse_args()
    utterances = read_utterances(args.wav_scp, args.text, args.segments)
    failures = make_raw_list(utterances, args.data_list, args.num_utts_per_shard)
    for key, reason in failures:
        print(f"error: {key}: {reason}", file=sys.stderr)
    print(f"{args.data_list}: {len(utterances) - len(failures)} utterances, {len(failures)} unusable", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    run(main)
