"""Dry run of the data: plan an epoch without reading audio, and account for every utterance.

    %(prog)s --data_list data/train/data.list --data_type shard \\
        --config conf/train_conformer.yaml --world_size 8

padding and fill are percentages: of the padded frames, and of the bound of a batch. skew is the
cost of the most expensive rank of a step divided by the mean of the ranks; frame_skew is the same
for padded frames. same_shard is the probability that two samples of a batch are from one shard.
order_correlation compares the order of this epoch with that of the next epoch. filtered counts the
utterances that filter_conf leaves out, and bad those that could not be indexed. digest is a hash of
the keys of all batches.

Exit status: 1 if an utterance is lost or planned twice, which would be a bug; 0 otherwise.
"""

import argparse
import sys
from collections.abc import Sequence

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.messages import note, warn_once
from wenet_uio.config import load_config
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import Passes
from wenet_uio.dataset.corpus.unread_audio import looking_again
from wenet_uio.dataset.open import open_for, read_source
from wenet_uio.prepare.diagnose.plan_page import PlanPage
from wenet_uio.prepare.diagnose.plan_report import PlanReport, report_plan


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--data_list", help="data list, or a yaml file of sources (default: `data` of the config)"
    )
    parser.add_argument(
        "--data_type", required=True, choices=("raw", "shard"), help="type of the data list"
    )
    parser.add_argument("--config", required=True, help="train.yaml")
    parser.add_argument("--world_size", type=int, default=1, help="number of ranks")
    parser.add_argument("--epoch", type=int, default=0, help="number of the epoch, from 0")
    parser.add_argument("--seed", type=int, default=777, help="seed of training")
    parser.add_argument(
        "--evaluation", action="store_true", help="plan as cross-validation and decoding do"
    )
    parser.add_argument(
        "--html",
        "--plot",
        metavar="FILE.html",
        help="write a page: which rank takes which batch, with its utterances; plots; figures",
    )
    add_json(parser, "the report as one JSON object")

    return parser


def print_report(report: PlanReport, corpus: Corpus, *, as_json: bool) -> None:
    """Print the report, and to standard error the samples that could not be indexed."""
    show = note if as_json else print
    show("\n".join(report.lines()))
    for key, reason in corpus.bad:
        print(f"bad: {key}: {reason}", file=sys.stderr)
    for warning in corpus.warnings:
        warn_once(warning)

    if as_json:
        print_json(report.as_dict())


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan the epoch, print the report and write the page.

    Returns:
        the exit status: 1 if an utterance is lost or planned twice.
    """
    command_line = parser()
    args = command_line.parse_args(arguments)
    if args.html and not args.html.endswith(".html"):
        raise ValueError(f"{args.html}: the page with the plots is written as .html")

    config = load_config(args.config, trust_code=True)
    data = args.data_list or config.data
    if data is None:
        command_line.error("--data_list is needed: the config has no `data`")

    with looking_again():
        source = read_source(data, args.data_type)
        corpus, measure = open_for(config, source, training=not args.evaluation)
    page = PlanPage(Passes(corpus).corpus_of(args.epoch), measure, args.world_size)
    report = report_plan(
        corpus,
        measure,
        seed=args.seed,
        epoch=args.epoch,
        world_size=args.world_size,
        on_batch=page.collect if args.html else None,
    )
    if args.html:
        title = f"{corpus.data_list}, epoch {args.epoch}, {args.world_size} ranks"
        page.write(report, title, args.html)

    print_report(report, corpus, as_json=args.json)
    return 1 if report.lost or report.duplicated else 0


if __name__ == "__main__":
    run(main)
