"""Find, for each length bucket of a corpus, the largest batch that trains.

The output is yaml for batch_conf.

    %(prog)s data/train/data.list --data_type raw \\
        --config conf/train_conformer.yaml --memory 4GB

Each bucket is tried with batches of its longest audio and its longest text, after the filters and
at the slowest speed. A trial runs whole optimizer steps of the config's model, without padding. The
number of utterances doubles until the batch does not fit in memory, and is then bisected to 5 %%.

On a CPU each trial is a process that cannot take more than --memory (Linux). On a GPU the allocator
gets that limit. --memory is the memory of one rank, without its data workers.
"""

import argparse
from collections.abc import Sequence

import torch

from wenet_uio.base.cli import command_parser, run
from wenet_uio.config.command_line import add_override_option
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.open import open_filtered, read_source
from wenet_uio.dataset.plan.duration_bins import worst_shapes
from wenet_uio.prepare.sharding import parse_size
from wenet_uio.train.batch_size import (
    batch_conf_yaml,
    cpu_trial,
    cuda_trial,
    largest_batches,
    leave_out_unfit,
)
from wenet_uio.train.run_config import choose_dtype, read_config


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("data_list", help="data list, or a yaml file that mixes several")
    parser.add_argument(
        "--data_type", required=True, choices=("raw", "shard"), help="type of the data list"
    )
    parser.add_argument(
        "--config",
        required=True,
        help="train.yaml; its bucket_duration_bins, if any, are the buckets",
    )
    add_override_option(parser)
    parser.add_argument(
        "--num_bins",
        type=int,
        default=10,
        help="buckets to make if the config has none",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: a GPU if there is one",
    )
    parser.add_argument(
        "--memory",
        type=parse_size,
        help="memory of a rank, such as 4GB; needed on a CPU (default: all memory of the GPU)",
    )
    parser.add_argument(
        "--fraction",
        type=float,
        default=0.9,
        help="part of --memory that trials may take",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=1,
        help="with more than 1, trials include DDP's gradient buckets",
    )

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line; `on_gpu` says where trials run."""
    command_line = parser()
    args = command_line.parse_args(arguments)
    args.on_gpu = args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available())
    if args.memory is None and not args.on_gpu:
        command_line.error(
            "--memory is needed on a CPU: the memory that one rank may take, such as 4GB"
        )

    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Find the batches and print batch_conf."""
    args = parse_arguments(arguments)
    config, tokenizer = read_config(args.config, args.override_config)
    config = choose_dtype(config, torch.device("cuda" if args.on_gpu else "cpu"))
    conf = config.dataset_conf
    source = read_source(args.data_list, args.data_type)
    corpus, measure = open_filtered(conf, source, tokenizer)
    first_epoch = Passes(corpus).corpus_of(0)
    policy, shapes = worst_shapes(first_epoch, measure, conf.batch_conf, args.num_bins)
    shapes = leave_out_unfit(policy, shapes)

    memory = int(args.fraction * (args.memory or torch.cuda.mem_get_info()[1]))
    make_trial = cuda_trial if args.on_gpu else cpu_trial
    trial = make_trial(config, memory, with_ddp=args.ranks > 1)
    batches = largest_batches(policy, shapes, trial, memory)
    print(batch_conf_yaml(policy, shapes, batches, conf.views.number), end="")


if __name__ == "__main__":
    run(main)
