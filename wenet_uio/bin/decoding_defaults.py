"""Print how a recipe decodes a model unless it is told otherwise, in three lines.

    %(prog)s exp/conformer/train.yaml

The first line has the decode modes that the model is trained for, the second line those of the
options language, task, timestamps and itn that its family knows, the third line the modes of the
model that use a language model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.config import load_config
from wenet_uio.config.command_line import add_trust_code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    add_trust_code(parser)
    parser.add_argument("config", help="train.yaml of the trained model")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the config and ask the record of its family."""
    options = parser().parse_args(arguments)
    config = load_config(options.config, of_model=True, trust_code=options.trust_code)
    print(*config.family.decoding.modes_of_recipes(config.model_conf))
    print(*config.family.decoding.options)
    print(*config.family.decoding.trained_scored_modes(config.model_conf))


if __name__ == "__main__":
    run(main)
