#!/usr/bin/env python3
"""Sum the features of a wav.scp for global mean and variance normalisation, as training computes them."""

import argparse

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.dataset.cmvn_stats import cmvn_statistics, write_cmvn
from wenet_uio.dataset.kaldi_dir import read_filled_table
from wenet_uio.executor import add_executor_options, executor_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train_config", required=True, help="yaml whose dataset_conf says which features")
    parser.add_argument("--in_scp", required=True, help="lines `key path`")
    parser.add_argument("--out_cmvn", required=True, help="JSON to write: mean_stat, var_stat, frame_num")
    parser.add_argument("--allow_bad", action="store_true", help="name files that have no features, and go on without")
    add_executor_options(parser, "--num_workers", "--nj")
    args = parser.parse_args()
    conf = load_config(args.train_config).dataset_conf
    wavs = list(read_filled_table(args.in_scp).items())
    statistics = cmvn_statistics(wavs, conf, executor_of(args), args.allow_bad)
    write_cmvn(statistics, args.out_cmvn)


if __name__ == "__main__":
    run(main)
