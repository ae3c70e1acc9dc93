#!/usr/bin/env python3
"""Estimate bins of duration, and of tokens within them, that hold equal amounts of audio; print yaml for batch_conf.

    estimate_duration_bins.py data/train/data.list --data_type shard --config conf/train_conformer.yaml --num_bins 30

Copy the output into `dataset_conf` of train.yaml, and add `bucket_batch_size`. find_batch_size.py can find the sizes.
"""

import argparse
import sys

import yaml

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.diagnose.bin_estimate import estimate_bins


def main() -> None:
    """Estimate the bins and print them as yaml."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_list", help="data list, or a yaml file that mixes several")
    parser.add_argument("--data_type", required=True, choices=("raw", "shard"), help="type of the data list")
    parser.add_argument("--config", required=True, help="train.yaml: its filter_conf and tokenizer are used")
    parser.add_argument("--num_bins", type=int, default=30, help="bins of duration (default: %(default)s)")
    parser.add_argument("--num_token_bins", type=int, help="bins of tokens within each bin of duration")
    args = parser.parse_args()
    config = load_config(args.config)
    found = estimate_bins(args.data_list, args.data_type, config, args.num_bins, args.num_token_bins)
    if args.num_token_bins:
        print(f"{found.outliers} of {found.utterances} utterances are outliers of tokens per second", file=sys.stderr)
    conf = {"batch_conf": found.batch_conf()}
    print(yaml.safe_dump(conf, sort_keys=False, default_flow_style=None), end="")
    print("  # bucket_batch_size: [...]   utterances per batch, one number per bin")


if __name__ == "__main__":
    run(main)
