#!/usr/bin/env python3
"""Dry run of the data: plan an epoch without reading audio, and account for every utterance."""

import argparse
import json
import sys

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.dataset.corpus.passes import Passes
from wenet_uio.dataset.open import open_for
from wenet_uio.diagnose.plan_plots import PlanCollector, check_plot_path, write_plot
from wenet_uio.diagnose.plan_report import report_plan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_list", help="data list, or a yaml file of sources; default: `data` of the config")
    parser.add_argument("--data_type", required=True, choices=("raw", "shard"))
    parser.add_argument("--config", required=True, help="train.yaml")
    parser.add_argument("--world_size", type=int, default=1, help="ranks (default: %(default)s)")
    parser.add_argument("--epoch", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=777, help="that of training (default: %(default)s)")
    parser.add_argument("--evaluation", action="store_true", help="as cross-validation and decoding read the list")
    parser.add_argument("--plot", metavar="FILE", help="picture: FILE.png, or FILE.html with the figures beside it")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    args = parser.parse_args()
    if args.plot:
        check_plot_path(args.plot)
    config = load_config(args.config)
    data = args.data_list or config.data
    if data is None:
        parser.error("--data_list is needed: the config has no `data`")
    corpus, measure = open_for(config, data, args.data_type, training=not args.evaluation)
    collector = PlanCollector(Passes(corpus).corpus_of(args.epoch), measure, args.world_size) if args.plot else None
    report = report_plan(
        corpus, measure, seed=args.seed, epoch=args.epoch, world_size=args.world_size, on_batch=collector
    ).as_dict()
    if collector:
        title = f"{corpus.data_list}, epoch {args.epoch}, world_size {args.world_size}"
        write_plot(args.plot, collector.series(), report, title)
    for name, value in report.items():
        print(
            f"{name:12} {json.dumps(value) if isinstance(value, dict) else value}",
            file=sys.stderr if args.json else None,
        )
    for key, reason in corpus.bad:
        print(f"bad: {key}: {reason}", file=sys.stderr)
    if args.json:
        print(json.dumps(report))
    return 1 if report["lost"] or report["duplicated"] else 0


if __name__ == "__main__":
    run(main)
