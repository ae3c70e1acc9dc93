#!/usr/bin/env python3
"""Join several corpora that other recipes prepared; sources.yaml names them.

OUT/sources/NAME is the training part of one source. OUT/train joins the training parts, for units
and normalisation; OUT/dev and OUT/test join the development and test parts. Keys begin with the
name of the source.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from sources import Source, read_sources

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import Recording, write_parts
from wenet_uio.prepare.kaldi_tables import read_utterances


def read_part(source: Source, part: str) -> list[Recording]:
    """Return utterances of one part of a source, with keys that begin with the name of the source.

    Raises:
        ValueError: the part is missing.
    """
    folder = source.data / part
    if not (folder / "wav.scp").is_file():
        raise ValueError(
            f"{folder}/wav.scp is missing: run stage 0 of the recipe of {source.name}, or name "
            "others with --sources"
        )

    segments = folder / "segments"
    lines = read_utterances(
        str(folder / "wav.scp"), str(folder / "text"), str(segments) if segments.exists() else None
    )
    return [
        Recording(f"{source.name}-{line.key}", Path(line.wav), line.text, line.start, line.end)
        for line in lines
    ]


def main() -> None:
    """Read the parts of all sources and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", type=Path, help="yaml list of name, data, weight")
    parser.add_argument("out", type=Path, help="folder of the parts: OUT/train/wav.scp and so on")
    args = parser.parse_args()
    sources = read_sources(args.sources)
    train = {source: read_part(source, "train") for source in sources}
    joined = {"train": list(chain.from_iterable(train.values()))}
    for part in ("dev", "test"):
        joined[part] = [recording for source in sources for recording in read_part(source, part)]

    of_sources = {str(source.part(Path())): recordings for source, recordings in train.items()}
    write_parts(args.out, {**of_sources, **joined})


if __name__ == "__main__":
    run(main)
