"""Check a data list: read every sample as training would, and name what is lost or suspect.

    %(prog)s data/train/data.list --data_type raw \\
        --config conf/train_conformer.yaml --html check.html

Training would lose broken and empty shards, samples without audio or text, audio that cannot be
decoded or whose length differs from the index, keys that occur twice, and with --config texts with
more labels than the model has frames of CTC. Suspect are silent and
clipped audio, sample rates that differ from the majority, and outliers of duration and of
characters per second. Suspect are characters of texts that nobody sees: invisible ones, accents
apart from their letters (NFD), and look-alikes of another script; --fix mends them. With units,
spaces and tokens that would become <unk> are suspect too.

Exit status: 0 if training would lose nothing, 1 otherwise.
"""

import argparse
import os
from collections.abc import Sequence

import torch

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.files import require_writable
from wenet_uio.base.messages import note
from wenet_uio.config import Config, load_config
from wenet_uio.dataset.chain.tokens import CtcFrames
from wenet_uio.dataset.corpus.unread_audio import looking_again
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.models.build import build_model
from wenet_uio.models.lengths import ctc_frames
from wenet_uio.prepare.diagnose.check import Reading, check_corpus
from wenet_uio.prepare.diagnose.check_fix import Fixed, write_clean_list
from wenet_uio.prepare.diagnose.check_report import as_text, write_html
from wenet_uio.prepare.diagnose.check_shards import opened_for_check
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.symbols import read_symbols
from wenet_uio.text.tokenizer import OWN_UNITS, build_splitter, build_tokenizer


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("data_list", help="data list, or a yaml file that mixes several")
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of the data list",
    )
    parser.add_argument("--config", help="train.yaml: channel, filters and tokenizer")
    parser.add_argument("--units", help="units file, instead of that of the config")
    parser.add_argument(
        "--bpe-model", "-m", help="sentencepiece model; needs --units, excludes --config"
    )
    parser.add_argument(
        "--non-lang-syms", "-l", help="file of symbols that are one unit each; needs --units"
    )
    parser.add_argument(
        "--split_with_space", action="store_true", help="units are words; needs --units"
    )
    parser.add_argument(
        "--no_audio", action="store_true", help="check only index and text, without decoding: fast"
    )
    parser.add_argument("--nj", type=int, default=os.cpu_count(), help="worker processes")
    add_json(parser, "the report as one JSON object")
    parser.add_argument(
        "--html", metavar="FILE", help="write a page with histograms, and players for the findings"
    )
    parser.add_argument(
        "--fix",
        metavar="OUT",
        help="write a list without the lost samples, which OUT.left_out.jsonl names, and without odd "
        "characters in texts, which OUT.texts.jsonl names",
    )

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    has_splitter = options.bpe_model or options.non_lang_syms or options.split_with_space
    if has_splitter and not options.units:
        command_line.error("--bpe-model, --non-lang-syms and --split_with_space need --units")
    if has_splitter and options.config:
        command_line.error("the tokenizer comes from --config: set its options there")
    for output in (options.html, options.fix):
        if output:
            require_writable(output)

    return options


def build_reading(options: argparse.Namespace) -> Reading:
    """Return the config, tokenizer and filters that the options name."""
    if options.config:
        overrides = [f"tokenizer_conf.symbol_table_path={options.units}"] if options.units else []
        config = load_config(options.config, overrides, trust_code=True)
        has_units = config.tokenizer_conf.symbol_table_path or config.tokenizer in OWN_UNITS
        tokenizer = build_tokenizer(config) if has_units else None
        frames = None if tokenizer is None else build_ctc_frames(config)
        return Reading(config.dataset_conf, tokenizer, filters=True, ctc_frames=frames)

    if not options.units:
        return Reading()

    splitter = build_splitter(
        "bpe" if options.bpe_model else "char",
        bpe_path=options.bpe_model,
        non_lang_syms_path=options.non_lang_syms,
        split_with_space=options.split_with_space,
    )
    return Reading(tokenizer=Tokenizer(splitter, read_symbols(options.units)))


def build_ctc_frames(config: Config) -> CtcFrames | None:
    """Return the frames of CTC in the model of a config, without weights and statistics."""
    with torch.device("meta"):
        return ctc_frames(build_model(config.model_copy(update={"cmvn": None})))


def describe_clean_list(out: str, fixed: Fixed) -> list[str]:
    """Return the lines that say what the clean list at `out` holds."""
    lines = [f"{out}: {fixed.kept} utterances; {out}.left_out.jsonl names the losses"]
    if fixed.mended:
        lines.append(f"{out}: {len(fixed.mended)} texts mended; {out}.texts.jsonl names them")
    if fixed.odd:
        lines.append(
            f"{out}: {len(fixed.odd)} texts with odd characters stay, because their shards are "
            f"remote, compressed or have a manifest; {out}.texts.jsonl names them"
        )

    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the list, print the report and write what the options ask for.

    Returns:
        the exit status: 1 if training would lose something.
    """
    options = parse_arguments(arguments)
    reading = build_reading(options)
    with (
        looking_again(),
        opened_for_check(options.data_list, options.data_type) as (corpus, not_indexed),
    ):
        report = check_corpus(
            corpus, not_indexed, reading, audio=not options.no_audio, processes=options.nj
        )
        show = note if options.json else print
        show(as_text(report))
        if options.html:
            write_html(options.html, report, BatchReader(corpus, reading.conf), options.data_list)

        if options.fix:
            fixed = write_clean_list(corpus, report, options.fix, options.data_list)
            note(*describe_clean_list(options.fix, fixed))

    if options.json:
        print_json(report.as_dict())

    return 1 if report.losses else 0


if __name__ == "__main__":
    run(main)
