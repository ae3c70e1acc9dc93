#!/usr/bin/env python3
"""AISHELL-1: Mandarin read in a quiet room by 400 speakers from all over China.

178 hours, 16 kHz mono wav, 141,600 utterances with text: 120,098 to train on, 14,326 for
development, 7,176 to test. Licence: Apache 2.0. https://www.openslr.org/33

Layout: `data_aishell/wav/{train,dev,test}/S0002/BAC009S0002W0122.wav` (speaker and utterance in the
name) and `data_aishell/transcript/aishell_transcript_v0.8.txt` with lines `key words`; the spaces
between words are removed. 325 recordings have no transcript. `resource_aishell/` holds a lexicon
and a list of speakers; no stage needs them.
"""

from __future__ import annotations

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    audio_files,
    preparation_parser,
    require_in,
    with_texts,
    write_parts,
)
from wenet_uio.text.normalize import mandarin
from wenet_uio.text.table import read_table

TRANSCRIPT = "data_aishell/transcript/aishell_transcript_v0.8.txt"
WAVS = "data_aishell/wav"


def main() -> None:
    """Pair the audio of each part with its texts, and write the parts."""
    args = preparation_parser(__doc__, "folder that holds data_aishell/").parse_args()
    require_in(args.corpus, TRANSCRIPT, *(f"{WAVS}/{part}" for part in ("train", "dev", "test")))
    texts = {key: mandarin(text) for key, text in read_table(args.corpus / TRANSCRIPT).items()}
    parts = {}

    for part in ("train", "dev", "test"):
        wavs = audio_files(args.corpus / WAVS / part, ".wav")
        # The transcript covers all parts, so a text without audio in this part is not a gap.
        parts[part] = with_texts(wavs, {key: texts[key] for key in wavs if key in texts}, part)

    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
