"""Measure where the time of a training batch goes, step by step, and advise what to change.

    %(prog)s data/train/data.list --data_type shard \\
        --config conf/train_conformer.yaml

The tool reads the first batches of an epoch in its own process, without workers. A worker of
training does the same work: N workers are N times as fast if there are enough cores and the storage
is fast enough.
"""

import argparse
from collections.abc import Sequence

import torch

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.messages import note
from wenet_uio.base.options import positive_int
from wenet_uio.config import load_config
from wenet_uio.config.command_line import add_override_option
from wenet_uio.dataset.chain.compiled import compiled
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.prepare.diagnose.profile import profile
from wenet_uio.text.tokenizer import build_tokenizer


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("data_list", help="data list, or a yaml file of sources")
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of the data list",
    )
    parser.add_argument("--config", required=True, help="train.yaml")
    add_override_option(parser)
    parser.add_argument(
        "--batches",
        type=positive_int,
        default=50,
        help="batches to read, after one batch that warms up",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="threads of torch; a worker has 1",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="computes the features with `feature_device: accelerator`",
    )
    parser.add_argument(
        "--speed",
        type=float,
        metavar="X",
        help="audio seconds per second that a rank trains; prints how many workers the rank needs",
    )
    parser.add_argument("--seed", type=int, default=777, help="seed of training")
    add_json(parser, "the profile as one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile the batches and print the times, the number of workers and the advice."""
    args = parser().parse_args(arguments)

    torch.set_num_threads(args.threads)
    config = load_config(args.config, args.override_config, trust_code=True)
    tokenizer = build_tokenizer(config)
    defer_features = config.dataset_conf.feature_device == "accelerator"
    options = LoaderOptions(rank=0, world_size=1, seed=args.seed, defer_features=defer_features)

    def make_loader() -> Loader:
        return build_loader(
            args.data_list, args.data_type, config, tokenizer, training=True, options=options
        )

    profiled = profile(make_loader, args.batches, args.device)
    report, lines = profiled.as_dict(), list(profiled.lines())
    report["fbank_on_cpu"] = compiled().way
    lines.append(f"fbank on a CPU by {compiled().way}")

    if args.speed:
        report["workers"] = profiled.workers_for(args.speed)
        lines.append(
            f"a rank that trains {args.speed:g} audio seconds per second: --num_workers "
            f"{report['workers']}"
        )

    lines += [f"advice: {line}" for line in report["advice"]]
    show = note if args.json else print
    show("\n".join(lines))
    if args.json:
        print_json(report)


if __name__ == "__main__":
    run(main)
