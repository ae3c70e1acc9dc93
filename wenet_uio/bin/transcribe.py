#!/usr/bin/env python3
"""Transcribe audio files of any length.

    python -m wenet_uio.bin.transcribe --model exp/conformer meeting.flac lecture.mp3
    python -m wenet_uio.bin.transcribe --model exp/conformer --format srt --output_dir subtitles *.wav

A recording is cut at its pauses, and what is longer than the utterances of training also at shorter ones. What is still
longer than --window is heard in windows that overlap, and their texts are joined where both hear the same. --format
text prints a line for each passage, json an object for each file, with the times of all words (seconds), srt subtitles.
Hot words and a language model help as in recognize.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from wenet_uio.audio.read import AudioError
from wenet_uio.cli import run
from wenet_uio.files import written_aside
from wenet_uio.search import MODES, check_modes
from wenet_uio.search.options import add_decode_options, build_scorers, decode_options
from wenet_uio.search.subtitles import subtitles
from wenet_uio.search.transcription import Cutting, Passage, Transcriber, load_recogniser
from wenet_uio.train.distributed import World, use_cpu_threads

SUFFIXES = {"text": "txt", "json": "json", "srt": "srt"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", nargs="+", help="files")
    parser.add_argument("--model", required=True, metavar="DIR", help="experiment: train.yaml and avg.pt or final.pt")
    parser.add_argument("--checkpoint", help="other weights than those")
    parser.add_argument("--mode", default="ctc_prefix_beam_search", help=", ".join(MODES) + " (%(default)s)")
    parser.add_argument("--format", choices=SUFFIXES, default="text", help="(%(default)s)")
    parser.add_argument("--output_dir", metavar="DIR", help="write DIR/<name>.<txt|json|srt>, print nothing")
    parser.add_argument(
        "--pause", type=float, help=f"seconds of quiet to cut at ({Cutting.pause}; 0: no pauses, windows only)"
    )
    parser.add_argument(
        "--usual",
        type=float,
        help="seconds: what is longer is cut at shorter pauses too (as long as 95 %% of the utterances of training; "
        f"{Cutting.usual:g} where environment.yaml does not say)",
    )
    parser.add_argument(
        "--window",
        type=float,
        help=f"seconds heard at a time, at most (the longest utterance of training, up to {Cutting.window:g})",
    )
    parser.add_argument(
        "--overlap", type=float, help=f"seconds that windows share ({Cutting.overlap:g}, at most half a window)"
    )
    parser.add_argument("--batch_size", type=int, default=8, help="segments recognised at a time (8)")
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda")
    add_decode_options(parser)
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    check_modes([args.mode])
    if args.batch_size < 1:
        raise ValueError(f"--batch_size: expected 1 or more, found {args.batch_size}")
    cutting = cutting_of(args)
    outputs = output_paths(args)
    world = World.from_environment(args.device)
    use_cpu_threads(world)
    config, tokenizer, model = load_recogniser(args.model, args.checkpoint)
    args.modes = [args.mode]
    transcriber = Transcriber(
        config,
        tokenizer,
        model,
        mode=args.mode,
        options=decode_options(args, token_times=True, nbest=1),
        scorers=build_scorers(args, tokenizer, world.device, warn=True),
        device=world.device,
        batch_size=args.batch_size,
    )
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
    """As the utterances of training, but for what the options say."""
    given = {name: getattr(args, name) for name in ("pause", "usual", "window", "overlap")}
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("pause") == 0:
        given["pause"] = None
    if "window" in given and "overlap" not in given:
        given["overlap"] = min(Cutting.overlap, given["window"] / 2)
    return replace(Cutting.of_run(args.model), **given)


def output_paths(args: argparse.Namespace) -> list[Path | None]:
    """The file that each audio's text goes to; None where it is printed.

    Raises:
        ValueError: two would go to the same file.
    """
    if args.output_dir is None:
        return [None] * len(args.audio)
    paths = [Path(args.output_dir) / f"{Path(audio).stem}.{SUFFIXES[args.format]}" for audio in args.audio]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise ValueError(f"--output_dir: two of the audio files would be written to {twice}")
    return paths


def written(
    transcriber: Transcriber, audio: str, passages: Iterable[Passage], args: argparse.Namespace
) -> Iterable[str]:
    """The lines of a file's transcript."""
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


def as_json(transcriber: Transcriber, passage: Passage) -> dict:
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
    run(main)
