"""Transcribe audio files of any length.

    %(prog)s --model exp/conformer meeting.flac lecture.mp3
    %(prog)s --model exp/conformer --format srt --output_dir . *.wav

A recording is cut at its pauses; segments longer than --usual are cut at shorter pauses as well.
Segments that are still longer than --window become overlapping windows, and their texts are joined
where both windows agree. --format text prints a line for each passage, json an object for each file
with the times of all words (seconds), srt and vtt subtitles. Hot words and a language model work as
in recognize.py. Audio may also be a pipe, a URL, or - (standard input). From Python:
`wenet_uio.load_model("exp/conformer").transcribe("talk.mp3")`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from wenet_uio.addons.listen.inputs import Input
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.listen.options import CUTTING, Cutting, TranscribeOptions
from wenet_uio.addons.listen.results import TranscriptSegment, srt_lines, vtt_lines
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info
from wenet_uio.base.cli import command_parser
from wenet_uio.base.files import written_aside
from wenet_uio.base.hub_address import add_revision
from wenet_uio.base.messages import hides_bar, note
from wenet_uio.base.options import add_options, values_of
from wenet_uio.config.command_line import add_trust_code, local_model
from wenet_uio.search import MODES, check_modes
from wenet_uio.search.options import add_decode_options, decode_options, scorer_options
from wenet_uio.train.distributed import World, use_cpu_threads

SUFFIXES = {"text": "txt", "json": "json", "srt": "srt", "vtt": "vtt"}
STDIN = "-"
READING = ("channel", "one_pass", "batch_size")
Found = tuple[int, TranscriptSegment | Exception]
"""Number of an audio file, and a segment of it, or the reason why it cannot be read."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("audio", nargs="+", help="audio files, pipes or URLs; - is standard input")
    parser.add_argument(
        "--model",
        required=True,
        metavar="DIR",
        help="folder of a run: train.yaml and avg.pt or final.pt; or an export: final.zip, folder "
        "of ONNX models; or hf://org/name of a hub",
    )
    add_revision(parser)
    parser.add_argument("--checkpoint", help="weights (default: avg.pt or final.pt in the folder)")
    parser.add_argument(
        "--mode",
        help=f"{', '.join(MODES)} (default: rnnt_greedy_search of a transducer without hot words "
        "and language model, else attention_rescoring, ctc_prefix_beam_search or the first mode that "
        "the model is trained for)",
    )
    parser.add_argument("--format", choices=SUFFIXES, default="text", help="output format")
    parser.add_argument(
        "--json",
        action="store_const",
        dest="format",
        const="json",
        help="the same as --format json",
    )
    parser.add_argument(
        "--output_dir",
        metavar="DIR",
        help="write DIR/<name>.<txt|json|srt|vtt> instead of printing, and name each file",
    )
    add_options(parser, TranscribeOptions, *CUTTING, "kept_quiet", *READING)
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    add_trust_code(parser)
    add_decode_options(parser)

    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Transcribe all files; 1 if one could not be read."""
    args = parser().parse_args(arguments)
    args.model = local_model(args.model, args.revision)
    modes = [args.mode] if args.mode else list(MODES)
    check_modes(modes)
    if args.batch_size < 1:
        raise ValueError(f"--batch_size: expected 1 or more, found {args.batch_size}")

    options = transcribe_options(args)
    # Wrong times are reported before the model is loaded
    options.cutting(Cutting.of_run(args.model))
    outputs = output_paths(args)
    use_cpu_threads(World.from_environment(args.device))
    recogniser = load_model(
        args.model, checkpoint=args.checkpoint, device=args.device, trust_code=args.trust_code
    )
    inputs: list[Input] = []
    for place, name in enumerate(args.audio):
        audio = sys.stdin.buffer if name == STDIN else name
        inputs.append(Input(audio, place))

    failed = 0

    recognised = show_progress(recogniser.iterate(inputs, options), inputs)
    for number, segments in segments_by_input(recognised, len(inputs)):
        audio, output = args.audio[number], outputs[number]
        segments = warn_without_words(segments, audio, inputs[number])
        lines = transcript_lines(segments, audio, inputs[number], args)
        try:
            write_lines(lines, output)
        except BrokenPipeError:
            raise
        except (AudioError, OSError) as error:
            print_line(f"error: {audio}: {str(error).removeprefix(f'{audio}: ')}", sys.stderr)
            failed += 1
        else:
            if output is not None:
                with tqdm.external_write_mode(sys.stderr):
                    note(f"wrote {output}")

    return 1 if failed else 0


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Write lines to a file, or print each as soon as it is there."""
    if output is None:
        for line in lines:
            print_line(line, sys.stdout)
    else:
        with written_aside(output, "w") as file:
            file.writelines(f"{line}\n" for line in lines)


def print_line(line: str, stream: TextIO) -> None:
    """Print a line, above the progress bar if a terminal shows one."""
    with tqdm.external_write_mode(stream):
        print(line, file=stream, flush=True)


def show_progress(found: Iterable[Found], inputs: Sequence[Input]) -> Iterator[Found]:
    """Yield what is found; a terminal shows how many seconds of each audio file are transcribed."""
    # Speech is found before the first segment.
    first = f"{inputs[0].name}: finding speech"
    with tqdm(desc=first, unit="s", disable=hides_bar(), leave=False, mininterval=0) as bar:
        if bar.disable:
            yield from found
            return

        shown_number = -1
        for number, segment in found:
            if isinstance(segment, Exception):
                yield number, segment
                continue

            if number != shown_number:
                info = audio_info(inputs[number].open())
                bar.set_description(inputs[number].name, refresh=False)
                bar.reset(total=round(info.num_samples / info.sample_rate))
                shown_number = number

            bar.update(round(segment.end) - bar.n)
            yield number, segment


def transcribe_options(args: argparse.Namespace) -> TranscribeOptions:
    """Return the options of the command line."""
    return TranscribeOptions(
        **values_of(TranscribeOptions, args, "mode", *CUTTING, *READING),
        **asdict(scorer_options(args)),
        decoding=asdict(decode_options(args)),
    )


def segments_by_input(
    segments: Iterable[Found], count: int
) -> Iterator[tuple[int, Iterator[TranscriptSegment]]]:
    """Yield (number, segments) of each of `count` inputs, also of those without segments."""
    groups = groupby(segments, key=lambda item: item[0])
    group = next(groups, None)
    for number in range(count):
        if group is None or group[0] != number:
            yield number, iter(())
        else:
            yield number, read_group(group[1])
            group = next(groups, None)


def read_group(group: Iterable[Found]) -> Iterator[TranscriptSegment]:
    """Yield the segments of one input; raises the exception that stands in place of a segment."""
    for _, segment in group:
        if isinstance(segment, Exception):
            raise segment
        yield segment


def output_paths(args: argparse.Namespace) -> list[Path | None]:
    """Return the output file of each audio file; None if the text is printed.

    Raises:
        ValueError: two audio files have the same output file.
    """
    if args.output_dir is None:
        return [None] * len(args.audio)

    paths = [
        Path(args.output_dir) / f"{Path(audio).stem}.{SUFFIXES[args.format]}"
        for audio in args.audio
    ]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise ValueError(f"--output_dir: two of the audio files would be written to {twice}")

    return [*paths]


def warn_without_words(
    segments: Iterable[TranscriptSegment], audio: str, recording: Input
) -> Iterator[TranscriptSegment]:
    """Yield the segments of a file; says if they have no word, since the output may be empty, and
    why.
    """
    has_words = False
    for segment in segments:
        has_words = has_words or bool(segment.text.strip())
        yield segment

    if not has_words:
        why = f": {recording.reason}" if recording.reason else ""
        print_line(f"warning: {audio}: no word was found{why}", sys.stderr)


def transcript_lines(
    segments: Iterable[TranscriptSegment],
    audio: str,
    recording: Input,
    args: argparse.Namespace,
) -> Iterable[str]:
    """Yield the lines of the transcript of a file, in the format of the options."""
    if args.format == "text":
        name = f"{audio}\t" if len(args.audio) > 1 and args.output_dir is None else ""
        for segment in segments:
            yield name + segment.named_text
    elif args.format == "json":
        passages = [segment.to_dict() for segment in segments]
        known = {"reason": recording.reason} if recording.reason else {}
        yield json.dumps({"audio": audio, "passages": passages, **known}, ensure_ascii=False)
    else:
        cues = [cue for segment in segments for cue in segment.cues()]
        yield from srt_lines(cues) if args.format == "srt" else vtt_lines(cues)
