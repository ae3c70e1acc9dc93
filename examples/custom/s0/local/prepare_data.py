#!/usr/bin/env python3
"""A corpus of your own: transcripts in a TSV, CSV, NeMo manifest, Lhotse cuts or Kaldi directory, and their audio.

- TSV, CSV: the first row names the columns: `wav` (or path, audio, file, …) and `text` (or sentence, transcript, …),
  and, where you have them, `key`, `start`, `end` (seconds), `speaker`, `part`; or rows of audio and text, no header;
- NeMo manifest: JSON lines with audio_filepath, text, duration, offset; Lhotse cuts: .jsonl or .jsonl.gz.

Relative paths of audio are from the folder of the transcripts (of the Kaldi directory), or else from --relative_to.

`part` (or split, subset; fields of the other forms too) says train, dev or test; or dev and test are files of their
own, --dev and --test. Where test is told and dev is not, a tenth of train is for it. Where nothing is, a tenth each of
the speakers is for development and test; of the utterances, where there are no speakers or fewer than ten.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.prepare.corpus_parts import write_parts
from wenet_uio.prepare.own_corpus import add_options, read_corpus, read_options


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path)
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    add_options(parser)
    parser.add_argument("--relative_to", type=Path, default=Path(), help="see above (default: the current folder)")
    args = parser.parse_args()
    options = read_options(args, args.relative_to)
    write_parts(args.out, read_corpus(args.transcripts, options, dev=args.dev, test=args.test, text=args.text))


if __name__ == "__main__":
    run(main)
