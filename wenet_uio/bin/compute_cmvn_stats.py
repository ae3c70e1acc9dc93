"""Sum features for global mean and variance normalisation, of wav.scp or of feats.scp.

    %(prog)s --train_config conf/train.yaml --in_scp data/train/wav.scp \\
        --out_cmvn data/train/global_cmvn --nj 8

Features of audio are computed as in training, without augmentation. Models that stack frames
get the statistics of the stacked frames.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import add_executor_options, make_executor
from wenet_uio.base.messages import note
from wenet_uio.config import load_config
from wenet_uio.config.command_line import add_override_option
from wenet_uio.dataset.formats.patterns import expand
from wenet_uio.prepare.cmvn_stats import cmvn_statistics, stack_statistics, write_cmvn
from wenet_uio.prepare.kaldi_tables import read_audio_lines


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--train_config",
        required=True,
        help="yaml; its dataset_conf says what features are computed",
    )
    add_override_option(parser)
    parser.add_argument(
        "--in_scp", required=True, help="lines `key path`, or feats.scp, or a pattern of several"
    )
    parser.add_argument(
        "--segments",
        help="lines `key recording start end [channel]` in seconds (default: beside in_scp)",
    )
    parser.add_argument(
        "--out_cmvn", required=True, help="JSON to write: mean_stat, var_stat, frame_num"
    )
    parser.add_argument(
        "--num_utts",
        type=int,
        default=0,
        help="use this many utterances, drawn at random (default: all)",
    )
    parser.add_argument(
        "--allow_bad",
        action="store_true",
        help="leave out audio without features instead of failing; stderr names it",
    )
    add_executor_options(parser, "--num_workers", "--nj")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the statistics and write them."""
    args = parser().parse_args(arguments)
    config = load_config(args.train_config, args.override_config, trust_code=True)

    # With a pattern of several wav.scp, the path of their segments is a pattern, too.
    segments = args.segments
    if not segments:
        beside = [Path(scp).with_name("segments") for scp in expand(args.in_scp)]
        if any(path.exists() for path in beside):
            segments = str(Path(args.in_scp).with_name("segments"))
            note(f"{segments} lies beside {args.in_scp} and is used")

    lines = read_audio_lines(args.in_scp, segments)
    if 0 < args.num_utts < len(lines):
        lines = random.Random(0).sample(lines, args.num_utts)

    statistics = cmvn_statistics(lines, config.dataset_conf, make_executor(args), args.allow_bad)
    write_cmvn(stack_statistics(statistics, config.model_conf.stacked_frames), args.out_cmvn)


if __name__ == "__main__":
    run(main)
