"""Write the recipe of a new corpus: examples/NAME/s0, ready to run. In an installed package this
folder is below the current one.

    %(prog)s digits --from digits.tsv --audio recordings/
    %(prog)s own --from train.json --dev dev.json --test test.json
    %(prog)s talks --from folder/
    bash examples/digits/s0/run.sh

Transcripts are a table, a manifest, or a folder of audio with texts; the form is found out by
looking, and what was understood is printed. They are read and checked as in stage 0 before the
recipe is written. local/prepare_data.py --help of the recipe describes all
forms.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from wenet_uio.base.cli import command_parser, run
from wenet_uio.prepare.corpus_parts import check_part
from wenet_uio.prepare.embedded import with_containers
from wenet_uio.prepare.new_recipe import is_installed, recipe_home, require_new, write_recipe
from wenet_uio.prepare.own_corpus import add_options, read_corpus, read_options


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("name", help="folder of the recipe below examples/")
    parser.add_argument(
        "--from",
        dest="transcripts",
        type=Path,
        required=True,
        help="transcripts, or the folder of the corpus",
    )
    add_options(parser)
    parser.add_argument(
        "--bpe",
        type=int,
        help="number of word pieces to use as units (default: characters are units)",
    )
    parser.add_argument(
        "--examples",
        type=Path,
        default=Path("examples") if is_installed() else recipe_home() / "examples",
        help="folder of the recipes",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Read and check the corpus, then write the recipe."""
    args = parser().parse_args(arguments)
    folder = args.examples / args.name / "s0"
    require_new(folder, args.name)

    for name in ("transcripts", "dev", "test", "audio"):  # run.sh is called in other folders
        path = getattr(args, name)
        if path is not None:
            setattr(args, name, path.resolve())

    with TemporaryDirectory() as scratch:
        parts = read_corpus(
            args.transcripts,
            read_options(args, Path.cwd(), Path(scratch)),
            dev=args.dev,
            test=args.test,
            text=args.text,
        )
        for part, recordings in parts.items():
            check_part(part, with_containers(recordings))

    values = {
        "data": args.transcripts,
        "dev": args.dev,
        "test": args.test,
        "audio": args.audio,
        "relative_to": Path.cwd(),
        "form": args.form,
        "audio_field": args.audio_field,
        "text_field": args.text_field,
        "text": args.text,
        "allow_bad": "true" if args.allow_bad else None,
        "trust_commands": "true" if args.trust_commands else None,
        "bpe": args.bpe,
    }
    options = {name: str(value) for name, value in values.items() if value}
    write_recipe(recipe_home() / "examples" / "custom" / "s0", folder, args.name, options)
    counts = ", ".join(f"{len(recordings)} {part}" for part, recordings in parts.items())
    print(f"{folder}: {counts} utterances; bash {shlex.quote(str(folder / 'run.sh'))}")


if __name__ == "__main__":
    run(main)
