"""Write report.html and the model card into the folder of a run.

    %(prog)s exp/conformer
    %(prog)s exp/conformer --language en --char 0

report.html has curves, epochs, data, results, environment and config.
The model card is README.md: data, config, error rates, use and limits of the model, with the front
matter of model hubs. A README.md that a person wrote stays as it is. Training writes both files
when the run is complete. Run this tool during training, or after scoring, which adds the error
rates. Of a run that started from a trained model it prints the error rates before and after, as
written and normalised, and warns of each that is higher than before.

    %(prog)s exp/conformer --language en --examples_of data/dev

also writes examples.yaml, which the page of the server shows to visitors: up to five short
sentences of this set that the model reads right, its words if they are few, its languages.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.run_files import board_folder
from wenet_uio.config.command_line import add_trust_code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("model_dir", help="folder of the run")
    parser.add_argument(
        "--tensorboard_dir",
        help="as --tensorboard_dir of the training (default: where the run wrote them)",
    )
    parser.add_argument(
        "--language",
        type=lambda text: [code for code in text.split(",") if code],
        metavar="A,B",
        help="ISO 639-1 codes for the model card (default: those of the card that is there)",
    )
    parser.add_argument(
        "--char",
        choices=("0", "1"),
        help="what the model card calls the error rates until a text is scored; 0: word error rates, "
        "1: character error rates (default: as in that card)",
    )
    parser.add_argument(
        "--examples_of",
        metavar="DIR",
        help="folder with data.list and text of the development set; writes examples.yaml",
    )
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of its data.list"
    )
    add_trust_code(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the report and the model card, and print their paths."""
    args = parser().parse_args(arguments)
    from wenet_uio.addons.publish.error_rates import read_changes
    from wenet_uio.addons.publish.model_card import CardFacts, write_model_card
    from wenet_uio.addons.publish.run_report import write_run_report

    given = args.tensorboard_dir
    board = None if given is None else board_folder(args.model_dir, given)
    print(write_run_report(args.model_dir, board), flush=True)
    metrics = {None: None, "0": "wer", "1": "cer"}
    facts = CardFacts(args.language, metrics[args.char])
    card = write_model_card(args.model_dir, facts, trust_code=args.trust_code)
    if card is not None:
        print(card)
    if args.examples_of is not None:
        print(_write_examples(args))

    changes = read_changes(args.model_dir)
    for change in changes:
        print(f"{args.model_dir}: {change}", flush=True)
    for change in changes:
        for line in change.warnings():
            print(f"warning: {args.model_dir}: {line}", file=sys.stderr)


def _write_examples(args: argparse.Namespace) -> Path:
    """Write examples.yaml of a run, and return its path."""
    from wenet_uio.addons.listen.example_choice import choose_examples
    from wenet_uio.addons.listen.examples import write_examples

    examples = choose_examples(
        args.model_dir,
        args.examples_of,
        data_type=args.data_type,
        languages=args.language or (),
        trust_code=args.trust_code,
    )
    return write_examples(args.model_dir, examples)


if __name__ == "__main__":
    run(main)
