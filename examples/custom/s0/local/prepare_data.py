#!/usr/bin/env python3
"""A corpus of your own: transcripts in a TSV, CSV, NeMo manifest, Lhotse cuts or Kaldi directory, and their audio.

- TSV, CSV: the first row names the columns: `wav` (or path, audio, file, …) and `text` (or sentence, transcript, …),
  and, where you have them, `key`, `start`, `end` (seconds), `speaker`, `part`; or rows of audio and text, no header;
- NeMo manifest: JSON lines with audio_filepath, text, duration, offset; Lhotse cuts: .jsonl or .jsonl.gz.

`part` says train, dev or test; without it a tenth each of the speakers (of the utterances, where there are no speakers)
is for development and test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.dataset.data_dir import write_parts
from wenet_uio.dataset.manifests import READERS
from wenet_uio.dataset.own_corpus import TEXTS, into_parts, read_transcripts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path)
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    parser.add_argument("--audio", type=Path, help="folder of the audio (default: as the transcripts say)")
    parser.add_argument("--form", choices=READERS, help="of the transcripts (default: by their name)")
    parser.add_argument("--text", choices=TEXTS, default="keep", help="how texts are made one (default: %(default)s)")
    args = parser.parse_args()
    if not args.transcripts.exists():
        raise ValueError(f"{args.transcripts} is not there: name your transcripts with --data")
    write_parts(args.out, into_parts(read_transcripts(args.transcripts, args.form, args.audio), args.text))


if __name__ == "__main__":
    run(main)
