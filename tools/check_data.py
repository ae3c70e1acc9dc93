#!/usr/bin/env python3
"""Read a whole data list as training would: name what it would lose, and what is worth a look.

    check_data.py data/train/data.list --data_type raw --config conf/train_conformer.yaml --html check.html

Lost are broken and empty shards, samples without audio or text, audio that does not decode or has another length than
its header says, keys that come twice. Suspect are silent and clipped audio, sample rates other than most have, outliers
of duration and of characters per second, and, where units are given, spaces and tokens that would become <unk>.

Exit status: 0 when training would lose nothing, 1 when it would.
"""

import argparse
import json
import os
import sys

from wenet_uio.cli import run
from wenet_uio.config import load_config
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.diagnose.check import check_corpus, opened_for_check
from wenet_uio.diagnose.check_fix import write_clean_list
from wenet_uio.diagnose.check_report import as_text, write_html
from wenet_uio.text.symbols import read_symbols
from wenet_uio.text.tokenizer import Tokenizer, build_splitter, build_tokenizer


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_list", help="data list, or a yaml file that mixes several")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="default: %(default)s")
    parser.add_argument("--config", help="train.yaml: channel, filters and tokenizer")
    parser.add_argument("--units", help="units file, in place of the config's")
    parser.add_argument("--bpe-model", "-m", help="sentencepiece model; with --units and without --config")
    parser.add_argument("--non-lang-syms", "-l", help="symbols that are one unit each; with --units")
    parser.add_argument("--split_with_space", action="store_true", help="units are words; with --units")
    parser.add_argument("--no_audio", action="store_true", help="only index and text: quick, and decodes nothing")
    parser.add_argument("--nj", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object on the last line of standard output")
    parser.add_argument("--html", metavar="FILE", help="page with plots, and players for what was found")
    parser.add_argument("--fix", metavar="OUT", help="list without what is lost, which OUT.left_out.jsonl names")
    options = parser.parse_args()
    if not options.units and (options.bpe_model or options.non_lang_syms or options.split_with_space):
        parser.error("tokenizer options need --units")
    if options.config and (options.bpe_model or options.non_lang_syms or options.split_with_space):
        parser.error("the tokenizer is that of --config; give its options there")
    return options


def read_tokenizer(options: argparse.Namespace) -> tuple[DatasetConf, Tokenizer | None]:
    """What the options say of data and units."""
    if options.config:
        override = [f"tokenizer_conf.symbol_table_path={options.units}"] if options.units else []
        config = load_config(options.config, override)
        has_units = config.tokenizer_conf.symbol_table_path
        return config.dataset_conf, build_tokenizer(config) if has_units else None
    if not options.units:
        return DatasetConf(), None
    splitter = build_splitter(
        "bpe" if options.bpe_model else "char",
        bpe_path=options.bpe_model,
        non_lang_syms_path=options.non_lang_syms,
        split_with_space=options.split_with_space,
    )
    return DatasetConf(), Tokenizer(splitter, read_symbols(options.units))


def main() -> int:
    options = parse_options()
    conf, tokenizer = read_tokenizer(options)
    with opened_for_check(options.data_list, options.data_type) as (corpus, not_indexed):
        report = check_corpus(
            corpus,
            not_indexed,
            conf,
            tokenizer=tokenizer,
            training=options.config is not None,
            audio=not options.no_audio,
            processes=options.nj,
        )
        print(as_text(report), file=sys.stderr if options.json else None)
        if options.html:
            write_html(options.html, report, BatchReader(corpus, (), (), conf), options.data_list)
        if options.fix:
            left = write_clean_list(corpus, report, options.fix, options.data_list)
            print(f"{options.fix}: {left} utterances; the others: {options.fix}.left_out.jsonl", file=sys.stderr)
    if options.json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
    return 1 if report.losses else 0


if __name__ == "__main__":
    run(main)
