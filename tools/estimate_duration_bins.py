#!/usr/bin/env python3
"""Find bins of duration (and of tokens within them) that hold equal amounts of audio; prints yaml for batch_conf."""

import argparse
import math
import sys
from typing import Any

import numpy as np
import yaml

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.corpus.passes import Passes
from wenet_uio.dataset.open import open_filtered
from wenet_uio.dataset.plan.duration_bins import duration_bins, token_bins
from wenet_uio.text.tokenizer import build_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_list", help="data list, or a yaml file that mixes several")
    parser.add_argument("--data_type", required=True, choices=("raw", "shard"))
    parser.add_argument("--config", required=True, help="train.yaml; its filter_conf and tokenizer count")
    parser.add_argument("--num_bins", type=int, default=30, help="bins of duration (default: %(default)s)")
    parser.add_argument("--num_token_bins", type=int, help="bins of tokens within each bin of duration")
    args = parser.parse_args()
    config = load_config(args.config)
    tokenizer = build_tokenizer(config) if args.num_token_bins else None
    opened, measure = open_filtered(config.dataset_conf, args.data_list, args.data_type, tokenizer)
    corpus = Passes(opened).corpus_of(0)
    columns = []
    for shard in range(corpus.num_shards):
        rows = corpus.rows(shard)
        kept = measure.keep(rows)[0] & (rows.sample_rate != TEXT_ONLY)
        columns.append((rows.seconds[kept], rows.text_length[kept]))
    seconds, tokens = (np.concatenate(column) for column in zip(*columns, strict=True))
    if tokenizer is None:
        ends = [round(end, 3) for end in duration_bins(seconds, args.num_bins)]
        max_tps = ()
    else:
        bins = token_bins(seconds, tokens, args.num_bins, args.num_token_bins)
        print(f"{bins.outliers} of {len(seconds)} utterances are outliers of tokens per second", file=sys.stderr)
        ends = [[round(end, 3), most] for end, most in bins.ends]
        max_tps = bins.max_tps
    batch_conf: dict[str, Any] = {"batch_type": "bucket", "bucket_duration_bins": ends}
    if max_tps:
        batch_conf["max_tps"] = [math.ceil(100 * limit) / 100 for limit in max_tps]
    print(yaml.safe_dump({"batch_conf": batch_conf}, sort_keys=False, default_flow_style=None), end="")
    print("  # bucket_batch_size: [...]   utterances of a batch, one number a bin")


if __name__ == "__main__":
    run(main)
