#!/usr/bin/env python3
"""A corpus of your own: audio, and transcripts in one of these forms.

- tsv, csv, xlsx, ods: the first row names the columns `wav` (or path, audio, Datei, …) and `text`
  (or sentence, Satz, 文本, …), and optionally `key`, `start`, `end` (seconds), `speaker`, `part`.
  Without such names, the column whose cells are files is the audio, and the one with the most words
  is the text; --audio_field and --text_field choose others. A table without audio is of the
  recording with its name, or of --audio talk.wav.
- nemo: JSON lines with audio_filepath, text, duration, offset; or metadata.jsonl with names of
  columns as above.
- lhotse: cuts in .jsonl or .jsonl.gz.
- kaldi: a folder, also of ESPnet. Commands in wav.scp (`sox … |`) are run with --trust_commands
  only; their audio is written to OUT/audio/commands.
- funasr: JSON lines with key, source, target. labelstudio: JSON or JSON-MIN; --text_field names the
  control of the texts.
- ljspeech: rows name|text or name|text|normalized text, as in metadata.csv of LJSpeech. The last
  column is the text; `--text_field raw` takes the other one.
- transcripts: transcripts.txt, *.trans.txt or prompts in folders of audio, with lines `name text`.
- pairs: a folder in which each audio file has a file with its text: a.wav and a.txt (or .lab, .trn,
  .text).
- srt, vtt, textgrid: long recordings, each with a file of its name (talk.wav, talk.en.srt), or one
  such file. Each cue or interval is an utterance. `--text_field` names the tier, or the part `en`
  of the name.
- audacity, elan: label tracks of Audacity (talk.wav, talk.txt), and ELAN's .eaf with their audio;
  --text_field names a tier of ELAN or a type of tiers.
- ctm: `recording channel start duration word` in one file for all recordings.
- stm: `recording channel speaker start end <labels> text`, as in TED-LIUM.
- parquet: files with audio bytes and a column of text, as Hugging Face's data sets have them. Names
  such as train-00000-of-00002.parquet give the parts. The audio is written to OUT/audio.

Single words with times (CTM, tiers of words) are joined up to pauses of 0.5 seconds, and to at most
20 seconds.

What cannot be used is left out, counted and named: audio without a text, files of text without
audio beside them, rows of parquet without audio, and utterances that end more than 0.5 seconds
after their audio. Lines that name audio that is not there are an error, unless --allow_bad leaves
them out.

The form is found out by looking; --form gives it. A file or a folder may be given. Relative paths
of audio start at the folder of the transcripts (the Kaldi directory), or else at --relative_to.
From ljspeech on, and where a table has no file at its path, audio is searched by name in that folder, or in --audio.

The column or field `part` (or split, subset) is train, dev or test; or folders train, dev and test
hold these parts; or --dev and --test name files of these parts. If there is a test part but no
development part, a tenth of train is used for development. If there is a development part but no
test part, or --test names the development part, its utterances are decoded as test. If utterances
have no part, a tenth of the speakers each is used for development and test; with fewer than ten
speakers, a tenth of the utterances.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import write_parts
from wenet_uio.prepare.embedded import with_audio
from wenet_uio.prepare.own_corpus import add_options, read_corpus, read_options


def main() -> None:
    """Read the transcripts and write the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "transcripts", type=Path, help="file of transcripts, or folder of the corpus"
    )
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    add_options(parser)
    parser.add_argument(
        "--relative_to",
        type=Path,
        default=Path(),
        help="folder of relative paths, see above (default: the current folder)",
    )
    args = parser.parse_args()
    options = read_options(args, args.relative_to, args.out / "audio" / "commands")
    parts = read_corpus(args.transcripts, options, dev=args.dev, test=args.test, text=args.text)
    write_parts(args.out, with_audio(parts, args.out / "audio"))


if __name__ == "__main__":
    run(main)
