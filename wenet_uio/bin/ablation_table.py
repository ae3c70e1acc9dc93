"""Write the table and the plot of an ablation: DIR/table.md, table.json, table.html.

    %(prog)s --tests "test test_noisy" exp/ablation conformer cr_ctc

It is called in the folder of a recipe; ablation.sh calls it after each model. Intervals are of
resampled utterances; the errors of all seeds of a row are added up first.
"""

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.config.command_line import add_trust_code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--tests", default="test", help="parts of data/ that are scored, separated by spaces"
    )
    parser.add_argument("folder", metavar="DIR", help="folder of the rows: DIR/ROW/seed_N")
    parser.add_argument("rows", nargs="+", metavar="ROW", help="rows in the order of the table")
    add_trust_code(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files and print the path of the table."""
    args = parser().parse_args(arguments)
    from wenet_uio.addons.publish.ablation import write_table

    print(write_table(args.folder, args.rows, args.tests.split(), trust_code=args.trust_code))


if __name__ == "__main__":
    run(main)
