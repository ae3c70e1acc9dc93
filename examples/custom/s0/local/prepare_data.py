#!/usr/bin/env python3
"""A corpus of your own: transcripts in a TSV, CSV, NeMo manifest, Lhotse cuts or Kaldi directory, and their audio.

- TSV, CSV: the first row names the columns `wav` (or path, audio, file, …) and `text` (or sentence, transcript, …), and
  optionally `key`, `start`, `end` (seconds), `speaker`, `part`. Without such a row, every row is audio and text.
- NeMo manifest: JSON lines with audio_filepath, text, duration, offset. Lhotse cuts: .jsonl or .jsonl.gz.

Relative paths of audio start at the folder of the transcripts (the Kaldi directory), or else at --relative_to.

The column or field `part` (or split, subset) is train, dev or test; or --dev and --test name files of these parts. If
there is a test part but no development part, a tenth of train is used for development. If utterances have no part, a
tenth of the speakers each is used for development and test; with fewer than ten speakers, a tenth of the utterances.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.prepare.corpus_parts import write_parts
from wenet_uio.prepare.own_corpus import add_options, read_corpus, read_options


def main() -> None:
    """Read the transcripts and write the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path, help="file of transcripts, or a Kaldi directory")
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    add_options(parser)
    parser.add_argument(
        "--relative_to",
        type=Path,
        default=Path(),
        help="folder of relative paths, see above (default: the current folder)",
    )
    args = parser.parse_args()
    options = read_options(args, args.relative_to)
    write_parts(args.out, read_corpus(args.transcripts, options, dev=args.dev, test=args.test, text=args.text))


if __name__ == "__main__":
    run(main)
