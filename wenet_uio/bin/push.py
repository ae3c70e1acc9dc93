"""Publish a model on a hub: train.yaml, units, CMVN, weights or an export, and the model card.

    %(prog)s exp/conformer org/name --license apache-2.0 --dry_run
    %(prog)s exp/conformer org/name --license apache-2.0 --private
    %(prog)s exp/conformer/onnx org/name --revision onnx

The model is loaded before it is uploaded. HF_TOKEN is the token, or `hf auth login` stores one;
HF_ENDPOINT names another hub. `report_run.py --language en --char 0` adds language and kind of
error rate to the model card of the run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.hub_address import hub_address
from wenet_uio.config.command_line import add_trust_code

if TYPE_CHECKING:
    from wenet_uio.addons.publish.stage import Staged


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="folder of a run, which stands for avg.pt, else final.pt; weights in it; or an export: "
        "final.zip, folder of ONNX models",
    )
    parser.add_argument("name", metavar="ORG/NAME", help="the model on the hub; made if missing")
    parser.add_argument("--license", help="such as apache-2.0 (default: that of the model card)")
    parser.add_argument(
        "--license_name",
        metavar="NAME",
        help="with --license other: name of a licence for which the hub has no identifier (default: "
        "that of the model card)",
    )
    parser.add_argument("--private", action="store_true", help="only its owners can read the model")
    parser.add_argument(
        "--revision", metavar="BRANCH", help="made if missing (default: the main branch)"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="delete weights and exports on the hub that this model does not have",
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="say what would be uploaded, and ask no server"
    )
    add_trust_code(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Upload the model and say what is where."""
    args = parser().parse_args(arguments)
    from wenet_uio.addons.publish.push import push
    from wenet_uio.addons.publish.stage import check_licence, stage_model

    address = hub_address(args.name, args.revision)
    check_licence(args.license, args.license_name)

    with TemporaryDirectory() as folder:
        staged = stage_model(
            args.model,
            Path(folder),
            address,
            licence=args.license,
            licence_name=args.license_name,
            trust_code=args.trust_code,
        )
        print_staged(staged)
        if args.dry_run:
            print(f"dry run: nothing is uploaded to {address}")
            return

        pushed = push(staged, address, private=args.private, replace=args.replace)

    for file in pushed.deleted:
        print(f"deleted there: {file}, of an earlier model")
    print(f"source: {pushed.source} at {pushed.commit}")
    print(address)


def print_staged(staged: Staged) -> None:
    """Print the files and where the model comes from."""
    for file in staged.files:
        print(f"{(staged.folder / file).stat().st_size:>14,} bytes  {file}")
    if staged.base is not None:
        print(f"trained from: {staged.base}; its licence may apply to this model, too")
    print(f"licence: {staged.licence}", flush=True)


if __name__ == "__main__":
    run(main)
