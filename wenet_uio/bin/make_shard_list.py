"""Pack wav.scp and text into tar shards with indexes, and list the shards.

    %(prog)s data/train/wav.scp data/train/text data/train/shards \\
        data/train/data.list --num_utts_per_shard 1000 --nj 8

LIST.json has counts, durations and digests of the shards, and the utterances that were left out,
with reasons. A repeated run makes only missing shards and those that other options or other audio
change. An utterance that cannot be packed is named on stderr, all others are packed, and the exit
status is 1.
"""

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import add_executor_options, make_executor
from wenet_uio.base.options import positive_int
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN
from wenet_uio.prepare.kaldi_tables import add_table_options, read_option_tables
from wenet_uio.prepare.list_making import make_shard_list, tell_outcome
from wenet_uio.prepare.shard_job import Storing
from wenet_uio.prepare.sharding import (
    PER_SECOND,
    ShardNaming,
    ShardOptions,
    parse_group,
    parse_size,
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    add_table_options(parser)
    parser.add_argument("shards_dir", help="folder for the shards")
    parser.add_argument("shards_list", help="list to write, one shard per line")
    parser.add_argument(
        "--prefix",
        default="shards",
        help="shards are named PREFIX_000000000.tar and so on",
    )
    parser.add_argument(
        "--fmt",
        metavar="NAME",
        help="names of the shards instead of --prefix, as in CAT: data-%%05d.tar",
    )
    parser.add_argument(
        "--num_utts_per_shard",
        type=positive_int,
        help=f"utterances per shard at most (default: {UTTERANCES_PER_RUN}; no bound with "
        "--max_bytes_per_shard)",
    )
    parser.add_argument(
        "--max_bytes_per_shard",
        metavar="SIZE",
        help="bytes per shard at most, such as 500MB, 1GB, 1GiB",
    )
    parser.add_argument(
        "--shuffle",
        action="store_true",
        help="shuffle the utterances before they are divided into shards",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of --shuffle")
    _add_group_options(parser)
    parser.add_argument(
        "--audio_format",
        choices=("keep", "wav", "flac", "opus"),
        default="keep",
        help="keep: the bytes of the file, wav if it has to be cut or resampled; flac: lossless, "
        "about half the size of wav; opus: lossy, a tenth of the size",
    )
    parser.add_argument(
        "--resample",
        type=int,
        metavar="HZ",
        help="store audio at this rate (default: rate of the audio)",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace and remove shards in the folder that belong to another list",
    )
    parser.add_argument(
        "--allow_bad", action="store_true", help="exit with 0 if utterances could not be packed"
    )
    add_executor_options(parser, "--num_threads", "--nj")

    return parser


def _add_group_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of groups of durations."""
    parser.add_argument(
        "--filter_group",
        nargs="+",
        default=[],
        metavar="SHORTEST:LONGEST",
        help="put utterances of SHORTEST to below LONGEST into the folder "
        "shards_dir/SHORTEST_LONGEST; utterances in no group are counted and listed. Give this "
        "option after the paths: --filter_group 0.1:5 5:20 20:",
    )
    parser.add_argument(
        "--filter_unit",
        choices=tuple(PER_SECOND),
        default="seconds",
        help="unit of --filter_group; frames: of stored features, or 10 ms of audio",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the shards and the list.

    Returns:
        the exit status: 1 if utterances are bad and --allow_bad is not given.
    """
    args = parser().parse_args(arguments)
    max_bytes = parse_size(args.max_bytes_per_shard) if args.max_bytes_per_shard else None
    per_shard = args.num_utts_per_shard
    if per_shard is None and not max_bytes:
        per_shard = UTTERANCES_PER_RUN
    executor = make_executor(args)
    naming = ShardNaming.of_format(args.fmt) if args.fmt else ShardNaming.of_prefix(args.prefix)
    options = ShardOptions(
        naming=naming,
        per_shard=per_shard,
        max_bytes=max_bytes,
        groups=[parse_group(text, args.filter_unit) for text in args.filter_group],
        seed=args.seed if args.shuffle else None,
        storing=Storing(args.audio_format, args.resample),
    )
    utterances = read_option_tables(args)
    bad = make_shard_list(
        utterances, args.shards_dir, args.shards_list, options, executor, overwrite=args.overwrite
    )

    return tell_outcome(args.shards_list, bad, args.allow_bad)


if __name__ == "__main__":
    run(main)
