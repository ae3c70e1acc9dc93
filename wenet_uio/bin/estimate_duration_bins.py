"""Estimate bins of duration, and of tokens within them, that hold equal amounts of audio.

The output is yaml for batch_conf.

    %(prog)s data/train/data.list --data_type shard \\
        --config conf/train_conformer.yaml --num_bins 30

The options of NeMo's estimate_duration_bins.py and estimate_duration_bins_2d.py work too:

    %(prog)s -b 30 [[manifest.json,0.7],[other.json,0.3]]
    %(prog)s -b 30 -s 5 --langs en pl \\
        --tokenizer en/tokenizer.model pl/tokenizer.model -- input_cfg.yaml

A file of Lhotse's cuts and a folder of its Shar are read as they are:

    %(prog)s -b 30 cuts.jsonl.gz

Copy the output into `dataset_conf` of train.yaml, and add `bucket_batch_size`. find_batch_size.py
can find the sizes.
"""

import argparse
import sys
from collections.abc import Sequence

import yaml

from wenet_uio.base.cli import command_parser, run
from wenet_uio.prepare.diagnose.bin_estimate import (
    add_options,
    estimate_bins,
    parse_data,
    read_config,
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    add_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Estimate the bins and print them as yaml."""
    args = parser().parse_args(arguments)
    estimate = estimate_bins(
        parse_data(args.data_list),
        args.data_type,
        read_config(args),
        args.num_bins,
        args.num_token_bins,
        args.token_outlier_threshold,
    )
    for reason, count in estimate.filtered.items():
        print(f"{count} utterances are left out by {reason}", file=sys.stderr)

    if args.num_token_bins:
        print(
            f"{estimate.outliers} of {estimate.utterances} utterances are outliers of tokens per "
            "second",
            file=sys.stderr,
        )

    conf = {"batch_conf": estimate.batch_conf()}
    print(yaml.safe_dump(conf, sort_keys=False, default_flow_style=None), end="")
    print("  # bucket_batch_size: [...]   utterances per batch, one number per bin")


if __name__ == "__main__":
    run(main)
