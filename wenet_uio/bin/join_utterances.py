"""Join utterances to longer ones, with pauses between them: training audio for long recordings.

    %(prog)s --longest 10 data/train data/joined

SOURCE has wav.scp and text, and segments if utterances are parts of recordings. OUT gets wav/,
wav.scp, text, and the table `joined` with the keys of the parts. Each utterance is a part once, in
random order. Lengths are drawn from a quarter of --longest to --longest; an utterance that is
longer than the draw stays alone. Train on both, in a mixture.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import add_executor_options, make_executor
from wenet_uio.prepare.joining import Joining, join_utterances
from wenet_uio.prepare.kaldi_tables import read_utterances


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("source", type=Path, help="folder with wav.scp and text, and segments")
    parser.add_argument("out", type=Path, help="folder of the joined utterances")
    parser.add_argument(
        "--longest", type=float, required=True, metavar="SECONDS", help="longest joined utterance"
    )
    parser.add_argument(
        "--pauses",
        type=float,
        nargs=2,
        default=Joining.pauses,
        metavar="SECONDS",
        help="shortest and longest pause before an utterance, seconds (default: 0.05 1.0)",
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=Joining.noise,
        metavar="DB",
        help="level of the pauses",
    )
    parser.add_argument(
        "--separator",
        default=Joining.separator,
        help='between the texts (default: a space; "" for characters)',
    )
    parser.add_argument(
        "--seed", type=int, default=Joining.seed, help="of order, lengths and pauses"
    )
    add_executor_options(parser, "--nj")

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Join, and say how many."""
    args = parser().parse_args(arguments)
    joining = Joining(args.longest, tuple(args.pauses), args.noise, args.separator, args.seed)
    segments = args.source / "segments"
    lines = read_utterances(
        str(args.source / "wav.scp"),
        str(args.source / "text"),
        str(segments) if segments.exists() else None,
    )
    joined = join_utterances(lines, args.out, joining, make_executor(args))
    print(f"{args.out}: {len(joined)} utterances, joined of {len(lines)}")


if __name__ == "__main__":
    run(main)
