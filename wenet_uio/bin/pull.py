"""Download a model of a hub, check its digests, and print its folder, licence and source.

    %(prog)s org/name
    %(prog)s org/name --revision v1.0 --offline

The last line of the output is the folder. All files are compared with their digests.
`transcribe --model`, `serve --model` and `train --from` take hf://org/name, too.
HF_ENDPOINT names a mirror, HF_TOKEN the token for private models.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.hub_address import add_revision


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("model", metavar="ORG/NAME", help="the model")
    add_revision(parser)
    parser.add_argument("--offline", action="store_true", help="take it from the cache alone")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Download the model and say what it is."""
    args = parser().parse_args(arguments)
    from wenet_uio.addons.publish.pull import pull

    pulled = pull(args.model, revision=args.revision, offline=args.offline, compare_all=True)
    print(f"source: {pulled.source} at {pulled.commit}")
    print(f"licence: {pulled.licence or 'not stated; ask its owner before you use it'}")
    print(pulled.folder)


if __name__ == "__main__":
    run(main)
