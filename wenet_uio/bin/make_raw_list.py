"""Make a raw list (JSON lines) and its index from wav.scp and text.

    %(prog)s wav.scp text data.list --nj 8

LIST.json has the totals and the bad utterances. An utterance whose audio cannot be read is not
trained on; stderr names it, and the exit status is 1.
"""

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import add_executor_options, make_executor
from wenet_uio.base.options import positive_int
from wenet_uio.dataset.corpus.open_list import THREADS
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN
from wenet_uio.prepare.kaldi_tables import add_table_options, read_option_tables
from wenet_uio.prepare.list_making import make_raw_list, tell_outcome


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    add_table_options(parser)
    parser.add_argument("data_list", help="list to write; the index is written as data_list.idx")
    parser.add_argument(
        "--num_utts_per_shard",
        type=positive_int,
        default=UTTERANCES_PER_RUN,
        help="the plan treats this many lines as one shard; shards of the same number of "
        "utterances give the same batches",
    )
    parser.add_argument(
        "--allow_bad", action="store_true", help="exit with 0 if some audio cannot be read"
    )
    add_executor_options(parser, "--num_threads", "--nj", default_workers="threads")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the list and report bad utterances.

    Returns:
        the exit status: 1 if there are any and --allow_bad is not given.
    """
    args = parser().parse_args(arguments)

    utterances = read_option_tables(args)
    bad = make_raw_list(
        utterances, args.data_list, args.num_utts_per_shard, make_executor(args, otherwise=THREADS)
    )
    return tell_outcome(args.data_list, bad, args.allow_bad)


if __name__ == "__main__":
    run(main)
