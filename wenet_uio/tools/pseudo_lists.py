"""Make the data lists of pseudo labels; pseudo_label.sh calls it.

    %(prog)s unlabelled --data_type shard more.list exp/unlabelled.list
    %(prog)s labels --min_confidence 0.9 \\
        exp/pseudo/unlabelled.list exp/pseudo/ctc exp/pseudo/data.list
    %(prog)s mixture --share 0.5 \\
        data/train/data.list exp/pseudo/data.list exp/pseudo/mixture.yaml

unlabelled: the list with empty texts, for recognize.py. labels: the utterances whose recognised
text is inside the limits; OUT.json has the counts, OUT.left_out.jsonl the other utterances.
mixture: a yaml file of both lists.
"""

import argparse

from wenet_uio.cli import command_parser
from wenet_uio.prepare.pseudo_labels import Limits
from wenet_uio.prepare.pseudo_lists import write_labelled, write_mixture, write_unlabelled

LIMITS = {
    "min_confidence": "least confidence of a text, 0 to 1: the geometric mean over its tokens",
    "min_seconds": "least length of an utterance",
    "max_seconds": "largest length of an utterance",
    "min_rate": "least number of characters per second",
    "max_rate": "largest number of characters per second",
    "max_cer": "largest CER in %% between the texts of both models; needs --second",
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = command_parser(__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of the lists"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    unlabelled = commands.add_parser(
        "unlabelled", parents=[common], help="write a list with empty texts"
    )
    unlabelled.add_argument("list", metavar="LIST", help="data list, with or without texts")
    labels = commands.add_parser(
        "labels", parents=[common], help="write a list with recognised texts"
    )
    for name, text in LIMITS.items():
        labels.add_argument(f"--{name}", type=float, help=f"{text} (default: no limit)")

    labels.add_argument(
        "--second", metavar="DIR", help="results of a second model in one decode mode"
    )
    labels.add_argument("list", metavar="LIST", help="the list that was recognised")
    labels.add_argument(
        "results", metavar="DIR", help="results of recognize.py in one decode mode: DIR/nbest.jsonl"
    )
    mixture = commands.add_parser(
        "mixture", parents=[common], help="write a yaml file of both lists"
    )
    mixture.add_argument(
        "--share",
        type=float,
        metavar="X",
        help="part of an epoch that is labelled (default: by size)",
    )
    mixture.add_argument(
        "labelled", metavar="LABELLED", help="data list with transcripts, or a yaml file of sources"
    )
    mixture.add_argument("list", metavar="LIST", help="data list of pseudo labels")
    for command in (unlabelled, labels, mixture):
        command.add_argument("out", metavar="OUT", help="file to write")

    return parser.parse_args()


def main() -> None:
    """Write the list, and print what is left out."""
    args = parse_arguments()
    if args.command == "unlabelled":
        write_unlabelled(args.list, args.data_type, args.out)
    elif args.command == "mixture":
        write_mixture(args.labelled, args.list, args.data_type, args.out, args.share)
    else:
        limits = Limits(**{name: getattr(args, name) for name in LIMITS})
        counts = write_labelled(
            args.list, args.data_type, args.results, limits, args.out, second=args.second
        )
        print(
            f"{counts['kept']['utterances']} of {counts['utterances']} utterances get a label: "
            f"{args.out}"
        )
        for reason, count in counts["left_out"].items():
            print(f"  left out, {reason}: {count['utterances']}")
