"""Convert between NeMo manifests, Lhotse cuts, Kaldi directories and raw lists.

A corpus of your own can be read as well.

    %(prog)s train_manifest.json data.list --to raw
    %(prog)s data/train cuts.jsonl.gz --from kaldi --to lhotse
    %(prog)s LJSpeech-1.1 manifest.json --to nemo
    %(prog)s talk.srt talk.list --to raw

The form of the source is found out by looking: a table, or a folder of audio with texts. What was
understood is printed before anything is written. `wenet-uio recipe home` prints a folder, in which
examples/custom/s0/local/prepare_data.py --help describes all forms. Segments are kept. Other fields
of an utterance are kept if the target has room for them. Paths become absolute.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import add_executor_options, make_executor
from wenet_uio.prepare.forms import FORMS
from wenet_uio.prepare.manifests import WRITERS, convert_manifest
from wenet_uio.prepare.own_corpus import add_read_options, read_options


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "source",
        help="file or folder to read; with --from kaldi the folder of wav.scp, text, segments, "
        "utt2dur, …",
    )
    parser.add_argument("target", help="file to write; with --to kaldi a folder")
    parser.add_argument(
        "--from",
        "--form",
        dest="form",
        choices=FORMS,
        help="form of the source (default: found out by looking)",
    )
    parser.add_argument(
        "--to", dest="write_as", required=True, choices=WRITERS, help="form of the target"
    )
    add_read_options(parser)
    add_executor_options(parser, "--num_threads", "--nj")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Convert the source and print the number of utterances."""
    args = parser().parse_args(arguments)
    audio_folder = Path(f"{args.target}.audio")
    if args.write_as == "kaldi":
        audio_folder = Path(args.target, "audio")
    options = read_options(args, Path(), audio_folder)
    count = convert_manifest(
        args.source,
        args.form,
        args.target,
        args.write_as,
        make_executor(args),
        options,
        args.text,
    )
    print(f"{args.target}: {count} utterances")


if __name__ == "__main__":
    run(main)
