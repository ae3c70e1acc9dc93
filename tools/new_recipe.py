#!/usr/bin/env python3
"""Write the recipe of a new corpus: examples/NAME/s0, ready to run.

    new_recipe.py digits --from digits.tsv --audio recordings/
    bash examples/digits/s0/run.sh

Transcripts are a TSV, a CSV, a NeMo manifest, Lhotse cuts or a Kaldi directory; they are read once, to see that they
can be. examples/custom/s0/local/prepare_data.py --help says what columns there may be.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.dataset.manifests import READERS
from wenet_uio.dataset.own_corpus import TEXTS, form_of, into_parts, read_transcripts
from wenet_uio.new_recipe import write_recipe

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--from", dest="transcripts", type=Path, required=True, help="the transcripts")
    parser.add_argument("--audio", type=Path, help="folder of the audio (default: as the transcripts say)")
    parser.add_argument("--form", choices=READERS, help="of the transcripts (default: by their name)")
    parser.add_argument("--text", choices=TEXTS, default="keep", help="how texts are made one (default: %(default)s)")
    parser.add_argument("--bpe", type=int, help="pieces of words as units, so many (default: characters)")
    parser.add_argument("--examples", type=Path, default=ROOT / "examples", help="(default: %(default)s)")
    args = parser.parse_args()

    transcripts = args.transcripts.resolve()
    form = args.form or form_of(transcripts)
    parts = into_parts(read_transcripts(transcripts, form, args.audio), args.text)
    options = {"data": str(transcripts), "form": form, "text": args.text}
    if args.audio:
        options["audio"] = str(args.audio.resolve())
    if args.bpe:
        options["bpe"] = str(args.bpe)
    folder = args.examples / args.name / "s0"
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_recipe(ROOT / "examples" / "custom" / "s0", folder, args.name, options)
    counts = ", ".join(f"{len(recordings)} {part}" for part, recordings in parts.items())
    print(f"{folder}: {counts} utterances; bash {folder / 'run.sh'}")


if __name__ == "__main__":
    run(main)
