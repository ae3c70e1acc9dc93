"""Make the indexes of lists that have none.

    %(prog)s data/train/data.list --data_type shard --nj 8
    %(prog)s conf/mixture.yaml

Such lists are shards of other tools, tarred sets of NeMo, and cuts and Shar of Lhotse.

Training also makes missing indexes when it first opens a list. This tool makes them beforehand, in
parallel, and lists samples that cannot be used. Shards with a valid index are not read again, so a
repeated run indexes the other shards.
"""

import argparse
import sys
from collections.abc import Sequence

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.executor import add_executor_options, make_executor
from wenet_uio.base.messages import note, warn_once
from wenet_uio.dataset.corpus.open_list import ListSource
from wenet_uio.dataset.corpus.unread_audio import looking_again
from wenet_uio.dataset.open import read_source
from wenet_uio.prepare.index_lists import index_list


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "data", help="data list, or a yaml file of sources: all lists in it are indexed"
    )
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        help="type of the data list; not needed for a yaml file",
    )
    add_json(parser, "one JSON object per list")
    add_executor_options(parser, "--nj")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Index the lists and print bad samples; the status is 1 if there are any."""
    args = parser().parse_args(arguments)
    source = read_source(args.data, args.data_type)
    if isinstance(source, ListSource) and not args.data_type:
        raise ValueError(
            f"{args.data}: the type of the list is missing; give --data_type raw or shard"
        )

    bad_count = 0
    for data_list in source.lists():
        with looking_again():
            indexed = index_list(data_list, make_executor(args))
        for key, reason in indexed.bad:
            print(f"bad: {key}: {reason}", file=sys.stderr)
        for warning in indexed.warnings:
            warn_once(f"{indexed.data_list}: {warning}")

        utterances = indexed.summary.samples
        hours = indexed.summary.seconds / 3600
        line = f"{utterances} utterances, {hours:.2f} h, {len(indexed.bad)} bad"
        show = note if args.json else print
        show(f"{indexed.data_list}: {line}")
        if args.json:
            bad = [{"key": key, "reason": reason} for key, reason in indexed.bad]
            counts = {"data_list": indexed.data_list, "utterances": utterances, "hours": hours}
            print_json({**counts, "bad": bad})

        bad_count += len(indexed.bad)

    return 1 if bad_count else 0


if __name__ == "__main__":
    run(main)
