#!/usr/bin/env python3
"""Transcribe audio files of any length.

    python -m wenet_uio.bin.transcribe --model exp/conformer meeting.flac lecture.mp3
    python -m wenet_uio.bin.transcribe --model exp/conformer --format srt --output_dir subtitles *.wav

A recording is cut at its pauses; segments longer than --usual are cut at shorter pauses as well. Segments that are
still longer than --window become overlapping windows, and their texts are joined where both windows agree. --format
text prints a line for each passage, json an object for each file with the times of all words (seconds), srt subtitles.
Hot words and a language model work as in recognize.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from wenet_uio.audio.read import AudioError
from wenet_uio.cli import run
from wenet_uio.files import written_aside
from wenet_uio.search import MODES, check_modes
from wenet_uio.search.decode import Search
from wenet_uio.search.options import add_decode_options, build_scorers, decode_options
from wenet_uio.search.recogniser import add_trust_code, load_recogniser
from wenet_uio.search.subtitles import subtitles
from wenet_uio.search.transcription import Cutting, Passage, Transcriber
from wenet_uio.train.distributed import World, use_cpu_threads

SUFFIXES = {"text": "txt", "json": "json", "srt": "srt"}


def parse_arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", nargs="+", help="audio files")
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="folder of a run: train.yaml and avg.pt or final.pt"
    )
    parser.add_argument("--checkpoint", help="weights (default: avg.pt or final.pt in the folder)")
    parser.add_argument("--mode", default="ctc_prefix_beam_search", help=", ".join(MODES) + " (%(default)s)")
    parser.add_argument("--format", choices=SUFFIXES, default="text", help="output format (%(default)s)")
    parser.add_argument("--output_dir", metavar="DIR", help="write DIR/<name>.<txt|json|srt> instead of printing")
    parser.add_argument(
        "--pause", type=float, help=f"cut at pauses of this many seconds ({Cutting.pause}; 0: windows only)"
    )
    parser.add_argument(
        "--usual",
        type=float,
        help="cut segments longer than this many seconds at shorter pauses as well (default: the 95th percentile of "
        f"the training utterances, at most {Cutting.usual:g})",
    )
    parser.add_argument(
        "--window",
        type=float,
        help="longest piece that is recognised at once, in seconds (default: the longest training utterance, at most "
        f"{Cutting.window:g})",
    )
    parser.add_argument(
        "--overlap", type=float, help=f"seconds that windows share ({Cutting.overlap:g}, at most half a window)"
    )
    parser.add_argument("--batch_size", type=int, default=8, help="segments that are recognised together (8)")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    add_trust_code(parser)
    add_decode_options(parser)
    return parser.parse_args()


def main() -> int:
    """Transcribe all files; 1 if one could not be read."""
    args = parse_arguments()
    check_modes([args.mode])
    if args.batch_size < 1:
        raise ValueError(f"--batch_size: expected 1 or more, found {args.batch_size}")
    cutting = cutting_of(args)
    outputs = output_paths(args)
    world = World.from_environment(args.device)
    use_cpu_threads(world)
    recogniser = load_recogniser(args.model, args.checkpoint, trust_code=args.trust_code)
    options = decode_options(args, token_times=True, nbest=1)
    scorers = build_scorers(args, [args.mode], recogniser.tokenizer, world.device, warn=True)
    search = Search([args.mode], options, scorers)
    transcriber = Transcriber(recogniser, search, device=world.device, batch_size=args.batch_size)
    failed = 0
    for audio, output in zip(args.audio, outputs, strict=True):
        try:
            lines = written(transcriber, audio, transcriber.transcribe(audio, cutting), args)
            if output is None:
                for line in lines:
                    print(line, flush=True)
            else:
                with written_aside(output, "w") as file:
                    file.writelines(f"{line}\n" for line in lines)
        except (AudioError, OSError) as error:
            print(f"error: {audio}: {str(error).removeprefix(f'{audio}: ')}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


def cutting_of(args: argparse.Namespace) -> Cutting:
    """The options, and for absent options the values that fit the training utterances."""
    given = {name: getattr(args, name) for name in ("pause", "usual", "window", "overlap")}
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("pause") == 0:
        given["pause"] = None
    if "window" in given and "overlap" not in given:
        given["overlap"] = min(Cutting.overlap, given["window"] / 2)
    return replace(Cutting.of_run(args.model), **given)


def output_paths(args: argparse.Namespace) -> list[Path | None]:
    """The output file of each audio file; None if the text is printed.

    Raises:
        ValueError: two audio files have the same output file.
    """
    if args.output_dir is None:
        return [None] * len(args.audio)
    paths = [Path(args.output_dir) / f"{Path(audio).stem}.{SUFFIXES[args.format]}" for audio in args.audio]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise ValueError(f"--output_dir: two of the audio files would be written to {twice}")
    return [*paths]


def written(
    transcriber: Transcriber, audio: str, passages: Iterable[Passage], args: argparse.Namespace
) -> Iterable[str]:
    """Lines of the transcript of a file, in the format of the options."""
    if args.format == "text":
        name = f"{audio}\t" if len(args.audio) > 1 and args.output_dir is None else ""
        for passage in passages:
            yield name + transcriber.text(passage.tokens)
    elif args.format == "srt":
        yield from subtitles(transcriber, passages)
    else:
        yield json.dumps(
            {"audio": audio, "passages": [as_json(transcriber, each) for each in passages]}, ensure_ascii=False
        )


def as_json(transcriber: Transcriber, passage: Passage) -> dict[str, Any]:
    """A passage as an object of the json format."""
    words = [
        {
            "word": word.text,
            "start": round(word.start, 3),
            "end": round(word.end, 3),
            "confidence": round(word.confidence, 4),
        }
        for word in transcriber.words(passage.tokens)
    ]
    start, end = passage.segment
    return {
        "start": round(start, 3),
        "end": round(end, 3),
        "text": transcriber.text(passage.tokens),
        "words": words,
    }


if __name__ == "__main__":
    run(main, prints_data=True)
