#!/usr/bin/env python3
"""Sum the features of a wav.scp for global mean and variance normalisation, as training computes them."""

import argparse

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.dataset.cmvn_stats import cmvn_statistics, write_cmvn
from wenet_uio.dataset.kaldi_dir import read_filled_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train_config", required=True, help="yaml whose dataset_conf says which features")
    parser.add_argument("--in_scp", required=True, help="lines `key path`")
    parser.add_argument("--out_cmvn", required=True, help="JSON to write: mean_stat, var_stat, frame_num")
    parser.add_argument("--num_workers", type=int, default=1, help="processes (default: %(default)s)")
    args = parser.parse_args()
    conf = load_config(args.train_config).dataset_conf
    statistics = cmvn_statistics(list(read_filled_table(args.in_scp).items()), conf, args.num_workers)
    write_cmvn(statistics, args.out_cmvn)


if __name__ == "__main__":
    run(main)
