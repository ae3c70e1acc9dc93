#!/usr/bin/env python3
"""How well does the plan mix? Padding, batch mates that meet again, shards of a batch, and order of
lengths.

Lengths are lognormal (median 6 s, sigma 0.6, within 0.5 and 30 s), in shards of --shard_size
utterances and batches of --frames padded frames, without speed perturbation.

    padding       percent of the padded frames without speech
    mates again   percent of the pairs of utterances of one batch that share a batch in the next epoch too
    same shard    percent of the pairs of utterances of one batch that come from one shard
    correlation   of the mean lengths of consecutive batches of one rank
"""

import argparse
import json

from plan_vs_lhotse import IndexOnlyCorpus, lengths
from provenance import benchmark_parser, provenance, settings

from wenet_uio.base.cli import run
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.prepare.diagnose.plan_report import report_plan

COLUMNS = {"padding": 1, "mates_again": 100, "same_shard": 100, "length_correlation": 1}
"""Figures of the report, and the factor that makes percent of them."""


def measure(args: argparse.Namespace, utterances: int, world_size: int) -> dict[str, float]:
    """Plan two epochs of a corpus; return the figures of the table."""
    batch = BatchConf(
        batch_type="dynamic", max_frames_in_batch=args.frames, length_jitter=args.length_jitter
    )
    rule = measure_of(DatasetConf(batch_conf=batch), training=True)
    corpus = IndexOnlyCorpus(lengths(utterances), args.shard_size)
    report = report_plan(corpus, rule, seed=1, epoch=0, world_size=world_size).as_dict()
    figures = {
        name: round(factor * float(str(report[name])), 2) for name, factor in COLUMNS.items()
    }

    return {"utterances": utterances, "ranks": world_size, **figures}


def main() -> None:
    """Measure corpora of every size and print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--utterances", nargs="+", type=int, default=[300, 1000, 3000, 10_000, 30_000, 500_000]
    )
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 8], help="default: 1 8")
    parser.add_argument(
        "--shard_size", type=int, default=1000, help="utterances of a shard (default: %(default)s)"
    )
    parser.add_argument(
        "--frames", type=int, default=12_000, help="max_frames_in_batch (default: %(default)s)"
    )
    jitter = BatchConf().length_jitter
    parser.add_argument(
        "--length_jitter", type=float, default=jitter, help="of batch_conf (default: %(default)s)"
    )
    args = parser.parse_args()
    print(
        f"{'utterances':>11}{'ranks':>6}{'padding':>9}{'mates again':>13}{'same shard':>12}{'correlation':>13}"
    )
    results = []

    for utterances in args.utterances:
        for world_size in args.ranks:
            figures = measure(args, utterances, world_size)
            results.append(figures)
            print("{:11}{:6}{:9.2f}{:13.2f}{:12.2f}{:13.2f}".format(*figures.values()), flush=True)

    if args.json:
        print(json.dumps({"corpora": results, **settings(args), **provenance("numpy")}))


if __name__ == "__main__":
    run(main)
