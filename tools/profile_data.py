#!/usr/bin/env python3
"""Where the time of a training batch goes, step by step, and what to change.

    profile_data.py data/train/data.list --data_type shard --config conf/train_conformer.yaml

Reads the first batches of an epoch in this process, without workers: each worker of a training does the same work, so
that N of them give N times the speed where there are cores and storage for it.
"""

import argparse
import json
import math
import sys

import torch

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.diagnose.profile import profile
from wenet_uio.text.tokenizer import build_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_list", help="data list, or a yaml file of sources")
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="what the list names (%(default)s)"
    )
    parser.add_argument("--config", required=True, help="train.yaml")
    parser.add_argument("--override_config", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batches", type=int, default=50, help="to read, after one to warm up (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of torch; a worker has one (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="that computes features left to the accelerator (%(default)s)")
    parser.add_argument(
        "--speed",
        type=float,
        metavar="X",
        help="audio seconds per second that a rank trains: how many workers it needs",
    )
    parser.add_argument("--seed", type=int, default=777, help="that of training (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    args = parser.parse_args()
    if args.batches < 1:
        raise ValueError(f"--batches must be 1 or more, found {args.batches}")
    torch.set_num_threads(args.threads)
    config = load_config(args.config, args.override_config)
    tokenizer = build_tokenizer(config)
    found = profile(
        lambda: build_loader(
            args.data_list,
            args.data_type,
            config,
            tokenizer,
            training=True,
            options=LoaderOptions(seed=args.seed, defer_features=config.dataset_conf.feature_device == "accelerator"),
        ),
        args.batches,
        args.device,
    )
    out = sys.stderr if args.json else sys.stdout
    report = found.as_dict()
    print(f"{'':<28}{'ms a batch':>11}{'share':>8}", file=out)
    for step, milliseconds in report["ms_per_batch"].items():
        print(f"{step:<28}{milliseconds:11.2f}{report['share'][step]:8.1%}", file=out)
    print(
        f"{found.batches} batches, {found.audio_seconds / 3600:.2f} hours: {found.speed:.0f} audio seconds per second "
        f"in one process; {found.padding:.1%} padding; first batch after {found.first_batch_seconds:.2f} s",
        file=out,
    )
    if args.speed:
        report["workers"] = math.ceil(args.speed / found.speed)
        print(f"--num_workers {report['workers']} a rank keep up with {args.speed:g}", file=out)
    for line in report["advice"]:
        print(f"advice: {line}", file=out)
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
